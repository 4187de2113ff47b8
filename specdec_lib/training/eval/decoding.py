"""Drafters measured by decoding held-out prompts in the loop, with the counts of `teacher_forced.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.heads.base import Target
from specdec_lib.loop import decode
from specdec_lib.training.data.examples import Example
from specdec_lib.training.eval.teacher_forced import Tally
from specdec_lib.types import LM, Session


def decode_live(spec: str, target: Target, facts: TokenizerFacts, prompts: Iterable[Example],
                checkpoints: Mapping[str, Any] | None = None, draft: LM | None = None) -> dict[str, Tally]:
    """The tally of every family when the method `spec` answers these prompts, each as long as its example.

    Decoding is greedy; `checkpoints` and `draft` go into the kit.
    """
    out: dict[str, Tally] = {}
    for example in prompts:
        lm = target.fresh()
        kit = Kit(lm, facts, checkpoints=checkpoints or {}, draft=draft and draft.fresh(), parts=catalog.make_part)
        method = catalog.build(spec, kit)
        for session in decode(example.prompt, lm, *method, max_new_tokens=len(example.output), end=facts.end):
            last = session
        out[example.source] = out.get(example.source, Tally()).plus(chain_tally(last))
    return out


def chain_tally(session: Session) -> Tally:
    """The tally of a finished decode whose drafts were chains."""
    tally = Tally()
    for round in session.rounds:
        tally.add(min(len(round.verdict.path), len(round.verdict.tokens)), len(round.draft))
    tally.tokens = len(session.output)             # nothing follows an end token inside a draft
    return tally


def evenly(data: Sequence[Example], groups: Iterable[Iterable[int]], count: int) -> list[Example]:
    """`count` held-out examples, taken evenly from all of them."""
    chosen = sorted((i for group in groups for i in group), key=lambda i: (data[i].source, i))
    count = min(count, len(chosen))
    return [data[chosen[int(i * len(chosen) / count)]] for i in range(count)]
