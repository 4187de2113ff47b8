"""Which methods and targets run in batches, and the sentences that refuse the others by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from specdec_lib import catalog
from specdec_lib.batches.loop import Fill, Read, Score
from specdec_lib.specs import MethodSpec
from specdec_lib.types import LM, Refusal


def why_unbatched(spec: MethodSpec | str) -> str:
    """Why this method does not run in batches, in one sentence; empty where it does.

    A batch wants rounds one after another and nothing that passes from one prompt to the next: prompts that run at once
    have no order. A drafter that reads the target's own layers (`early-exit`) leaves rows behind that the shared
    forward computes again.
    """
    card = catalog.card_of(spec)
    if card.parallel:
        return f"{spec} drafts while the target verifies, so it has no rounds that a batch could share"
    if card.learns_across_prompts:
        return f"{spec} learns from one prompt for the next, and in a batch prompts run at once"
    return ""


def refuse_unbatched(spec: MethodSpec) -> None:
    """Raises Refusal where this method does not run in batches."""
    if why := why_unbatched(spec):
        raise Refusal(f"{why}: run it with --batch 1")


class TargetInBatch(NamedTuple):
    """How sequences of a target share forwards."""

    member: Callable[[Any], LM]                    # the target of one sequence, from a loaded and bound one
    score: Score
    fill: Fill | None = None                       # what drafters ask of their networks; None: each drafts alone
    read: Read | None = None                       # of several newcomers' prompts at once; None: each alone


def in_batch(target: LM) -> TargetInBatch:
    """The shared forwards of a new batch of this target; Refusal where its sequences cannot share one."""
    from specdec_lib.batches.drafting import score_drafts
    from specdec_lib.models.llama import joint
    from specdec_lib.models.llama.decoder import Transformer
    from specdec_lib.seq2seq import joint as seq2seq
    from specdec_lib.seq2seq.verifier import Verifier

    if isinstance(target, Transformer):
        return TargetInBatch(joint.member, joint.score_together, score_drafts)
    if isinstance(target, Verifier):
        shared = seq2seq.SharedForwards()
        return TargetInBatch(seq2seq.member, shared.score, shared.fill, seq2seq.read_together)
    raise Refusal(f"batches need a target that our own decoder runs, and this one is a {type(target).__name__}:"
                  " run it with --batch 1")
