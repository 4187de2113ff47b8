"""Which methods and targets run in batches, and the sentences that refuse the others by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from specdec_lib import catalog
from specdec_lib.batches.loop import Fill, Read, Score
from specdec_lib.specs import MethodSpec
from specdec_lib.types import LM, Refusal

METHODS = ("ar", "prompt-lookup", "sam", "token-recycling", "sam+token-recycling", "draft-model", "eagle", "specdec")


def refuse_unbatched(spec: MethodSpec) -> None:
    """Raises Refusal where this method does not run in batches.

    A batch wants rounds one after another, a drafter that leaves the target's forwards to the loop, and nothing that
    passes from one prompt to the next: prompts that run at once have no order.
    """
    card = catalog.card_of(spec)
    if card.parallel:
        raise Refusal(f"{spec} drafts while the target verifies, so it has no rounds that a batch could share; batches"
                      f" run {', '.join(METHODS)}")
    if card.learns_across_prompts:
        raise Refusal(f"{spec} learns from one prompt for the next, and in a batch prompts run at once; batches run"
                      f" {', '.join(METHODS)}")
    if spec.name not in METHODS:
        raise Refusal(f"{spec.name} is not supported in batches: run it with --batch 1, or take one of"
                      f" {', '.join(METHODS)}")


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
