"""Examples to learn from: a prompt and the target's answer as token ids, cleaned and split by prompt.

Knows nothing about models. A hash of its text decides whether a prompt is held out, so every checkpoint holds out the
same prompts, whatever else it was trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specdec_lib.hub.chat_template import History, with_system
from specdec_lib.types import Refusal

HELD_OUT = 20                                      # one prompt in twenty
LONGEST_LOOP = 64                                  # tokens of a loop that are kept
FIELDS = ("source", "temperature", "prompt", "output")


@dataclass(frozen=True)
class Example:
    """One answer. Examples with `held_out` are for measuring and never for training."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    source: str = ""
    temperature: float = 0.0
    held_out: bool = False

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt + self.output

    def __len__(self) -> int:
        return len(self.prompt) + len(self.output)


def examples(records: Iterable[Mapping], encode: Callable[[History], tuple[int, ...]],
             forbidden: frozenset[str] = frozenset(), longest: int = 640) -> Iterator[Example]:
    """Clean examples of records {source, temperature, prompt, output}; drops duplicates and forbidden prompts.

    A later turn of a conversation has `earlier` as well: the user's turns and the answers before it, by turns; and
    where the system spoke first, `system`. `encode` gives the ids up to where the answer begins. `forbidden` holds
    texts as `normalised` gives them. The first turn decides whether a conversation is held out, so none is split.
    Outputs are cut where they loop and at `longest` tokens. Raises Refusal for a record without its fields.
    """
    seen: set[tuple] = set()
    for place, record in enumerate(records, 1):
        refuse_absent(record, f"record {place} of the training data")
        turns, output = (*record.get("earlier", ()), record["prompt"]), tuple(record["output"])
        said, system = tuple(map(normalised, turns)), record.get("system")
        if (system, said, output) in seen or forbidden.intersection(said[::2]):
            continue
        seen.add((system, said, output))
        prompt = tuple(encode(with_system(turns, system)))
        output = without_loop(output)[:max(0, longest - len(prompt))]
        if len(output) >= 2:
            yield Example(prompt, output, record["source"], float(record["temperature"]), is_held_out(turns[0]))


def refuse_absent(record: Mapping, where: str) -> None:
    """Raises Refusal for a record without one of its fields."""
    absent = [name for name in FIELDS if name not in record]
    if absent:
        raise Refusal(f"{where} lacks {absent[0]!r}: it needs {', '.join(FIELDS)}")


def learned_from(example: Example, first: int) -> Example:
    """The same tokens, of which all from `first` on are learned: its prompt's as well as its answer's."""
    return replace(example, prompt=example.tokens[:first], output=example.tokens[first:])


def common_start(data: Sequence[Example]) -> int:
    """Tokens with which all prompts begin: what the chat template says before the user does."""
    first, last = min(one.prompt for one in data), max(one.prompt for one in data)       # all others lie between them
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def normalised(text: str) -> str:
    """The text in the form in which prompts are compared: case folded, single blanks."""
    return " ".join(text.casefold().split())


def is_held_out(prompt: str) -> bool:
    """Whether this prompt is held out; the same for all its outputs."""
    return int.from_bytes(hashlib.sha256(normalised(prompt).encode()).digest()[:4], "big") % HELD_OUT == 0


def without_loop(output: Sequence[int], longest: int = LONGEST_LOOP, period: int = 32) -> tuple[int, ...]:
    """The output up to where a block of at most `period` tokens has repeated for more than `longest` tokens.

    Small models loop at temperature 0, and loops are so easy to draft that they inflate every acceptance rate.
    """
    tokens = np.asarray(output)
    stop = len(tokens)
    for step in range(1, min(period, len(tokens) - longest - 1) + 1):
        same = tokens[step:] == tokens[:-step]
        if np.count_nonzero(same) > longest:       # else no run of them is so long
            runs = np.convolve(same, np.ones(longest + 1, dtype=int), "valid")
            stop = min([stop, *(np.flatnonzero(runs == longest + 1)[:1] + step + longest)])
    return tuple(output[:stop])


def frequent(data: Iterable[Example], rows: int, keep: Iterable[int] = ()) -> list[int]:
    """The `rows` most frequent output tokens, sorted: a drafter's vocabulary (FR-Spec).

    Tokens of `keep` come before all others, however rare; a token that no output holds is left out.
    """
    counts: dict[int, int] = {}
    for example in data:
        for token in example.output:
            counts[token] = counts.get(token, 0) + 1
    kept = set(keep)
    best = sorted(counts, key=lambda token: (token not in kept, -counts[token], token))
    return sorted(best[:rows])
