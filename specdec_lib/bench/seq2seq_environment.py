"""The environment of the target `g2p`: an encoder-decoder that pronounces words, its letters and sounds as text.

A prompt's last message is the source. Its own prompts are words and sentences that were held out, and the quality of
an output is its phoneme and word error rates against the prompt's references.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from specdec_lib import measure
from specdec_lib.bench.draft_source import DraftSource
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.cards import TokenizerFacts
from specdec_lib.checkpoints.card import read_card
from specdec_lib.checkpoints.checkpoint_files import CheckpointFolder
from specdec_lib.hub.chat_settings import USUAL, ChatSettings
from specdec_lib.hub.chat_template import SYSTEM
from specdec_lib.sampling import Sampling
from specdec_lib.seq2seq.alphabet import END, NAMES, VOCAB, phoneme_text, source_ids
from specdec_lib.seq2seq.dictionary import HELD_OUT, spoken_ids
from specdec_lib.seq2seq.errors import Errors, errors, total
from specdec_lib.seq2seq.network import EncoderDecoder
from specdec_lib.seq2seq.search import read_sources, searched
from specdec_lib.seq2seq.stored import VERIFIER, load_verifier
from specdec_lib.seq2seq.verifier import Verifier
from specdec_lib.types import Refusal

BEAM, WIDTH = "beam", 5
WARM_UP = ("pronunciation", "several words in a row")
PROMPTS = HELD_OUT
CONTEXT = 32                                       # tokens at which the cost of a forward is measured


def is_seq2seq(target: str) -> bool:
    """Whether this name is the encoder-decoder's."""
    return target == VERIFIER


@dataclass(frozen=True)
class BeamSearch:
    """Beam search as a peer: the quality bar. Its forwards score `width` outputs each."""

    net: EncoderDecoder
    width: int = WIDTH
    name: str = BEAM

    def __call__(self, ids: Sequence[int], max_new_tokens: int, seed: int = 0) -> Outcome:
        start = perf_counter()
        memory = read_sources(self.net, [ids])
        begun = perf_counter()
        [(tokens, forwards)] = searched(self.net, memory, 1, self.longest(max_new_tokens), self.width)
        return Outcome(tokens, begun - start, perf_counter() - begun, len(tokens), forwards)

    def longest(self, max_new_tokens: int) -> int:
        return min(max_new_tokens, self.net.sizes.positions - 1)

    def together(self, many: Sequence[Sequence[int]], max_new_tokens: int
                 ) -> tuple[float, list[tuple[tuple[int, ...], int]]]:
        """The seconds of reading all sources; of each its output, and in how many of the shared forwards it was."""
        start = perf_counter()
        memory = read_sources(self.net, many)
        reading = perf_counter() - start
        return reading, searched(self.net, memory, len(many), self.longest(max_new_tokens), self.width)


def parts_of_environment(device: str, dtype: torch.dtype, about: Mapping, peers: Sequence[str],
                         sampling: Sampling | None, shelf: Path, say) -> dict[str, Any]:
    """The fields of an `Environment` for this target. Refusal for what it cannot do."""
    if device != "cpu":
        raise Refusal(f"the target {VERIFIER} runs on the CPU: take --device cpu")
    if sampling is not None and peers:
        raise Refusal(f"{BEAM} is compared with greedy decoding: leave --temperature out, or --peers")
    net, _ = load_verifier(shelf)
    net = net.to(dtype)
    target = Verifier(net).bound(source_ids(WARM_UP[1]))             # so that a cost curve has something to read
    facts = TokenizerFacts(end=frozenset({END}), control=frozenset(range(END + 1)), vocab=VOCAB,
                           context=target.context)
    trained = CheckpointFolder(shelf, target, None, VERIFIER, say)
    return {"target": target, "encode": encode, "decode": phoneme_text, "stream": PhonemeStream, "facts": facts,
            "checkpoints": trained,
            "loaded": lambda: {VERIFIER: read_card(shelf, VERIFIER)["sha256"], **trained.checksums()},
            "peers": tuple(BeamSearch(net) for _ in peers), "about": about, "name": NAMES.__getitem__,
            "drafter": DraftSource(), "warm_up": WARM_UP, "quality": error_rates}


def refuse_for_seq2seq(drafters: Mapping[str, str | None], chat: ChatSettings = USUAL) -> None:
    """Refuses models that draft for language models of text, by option, and settings of a conversation."""
    if chat != USUAL:
        raise Refusal(f"--system and --template-switches are for conversations, and the target {VERIFIER} pronounces"
                      " words: leave them out")
    for option, name in drafters.items():
        if name is not None:
            raise Refusal(f"--{option} names a model of text, and the target {VERIFIER} writes phonemes: leave it out")


def encode(messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
    """The last message as letters. Refusal for a system turn, which no word has."""
    if messages[0][0] == SYSTEM:
        raise Refusal(f"the target {VERIFIER} pronounces words, and a prompt has a system turn: remove it")
    return source_ids(messages[-1][1])


class PhonemeStream:
    """Phonemes as they come, a blank before each but the first."""

    def __init__(self):
        self.begun = False

    def push(self, ids: Sequence[int]) -> str:
        """The text that these tokens add."""
        text = phoneme_text(ids)
        blank = " " if self.begun and text else ""
        self.begun = self.begun or bool(text)
        return blank + text

    def finish(self) -> str:
        return ""


def error_rates(prompts: Sequence[Prompt], decodes: Sequence[Decode]) -> dict:
    """Phoneme and word error rates of these decodes with 95 % intervals over prompts; {} without references."""
    wanted = {prompt.question_id: [spoken_ids(one) for one in prompt.reference] for prompt in prompts
              if prompt.reference}
    by_prompt: dict[int | str, Errors] = {}
    for one in decodes:
        if one.question_id in wanted:
            found = errors(one.outcome.tokens, wanted[one.question_id])
            by_prompt[one.question_id] = by_prompt.get(one.question_id, Errors()).plus(found)
    if not by_prompt:
        return {}
    whole = total(list(by_prompt.values()))
    pairs = {"phoneme_error_rate": [(one.edits, one.length) for one in by_prompt.values()],
             "word_error_rate": [(one.wrong, one.words) for one in by_prompt.values()]}
    return {"phoneme_error_rate": whole.phoneme_rate, "word_error_rate": whole.word_rate,
            "error_rates_ci": {name: measure.share_interval(some) for name, some in pairs.items()}}
