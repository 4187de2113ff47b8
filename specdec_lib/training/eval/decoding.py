"""The same drafters in the loop: held-out prompts decoded for real, counted as `judge.py` counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specdec_lib import catalog
from specdec_lib.loop import decode
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.examples import Example
from specdec_lib.training.eval.teacher_forced import Tally
from specdec_lib.types import LM, Facts, Kit, Session


def decode_live(spec: str, target: Transformer, facts: Facts, prompts: Iterable[Example],
                checkpoints: Mapping[str, Any] | None = None, draft: LM | None = None) -> dict[str, Tally]:
    """The tally of every family when the method `spec` answers these prompts, each as long as its example's answer.

    Decoding is greedy and by the loop; `checkpoints` and `draft` go into the kit. Counts are of real rounds.
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
    tally.tokens = len(session.output)             # an end token inside a draft is followed by nothing
    return tally


def evenly(data: Sequence[Example], groups: Iterable[Iterable[int]], count: int) -> list[Example]:
    """`count` held-out examples, taken evenly from all of them."""
    chosen = sorted((i for group in groups for i in group), key=lambda i: (data[i].source, i))
    count = min(count, len(chosen))
    return [data[chosen[int(i * len(chosen) / count)]] for i in range(count)]
