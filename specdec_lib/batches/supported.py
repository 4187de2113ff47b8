"""Which methods run in batches, and the sentence that refuses the others by name."""

from __future__ import annotations

from specdec_lib import catalog
from specdec_lib.specs import MethodSpec
from specdec_lib.types import LM, Refusal

METHODS = ("ar", "prompt-lookup", "sam", "token-recycling", "sam+token-recycling", "draft-model", "eagle")


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


def refuse_target(target: LM) -> None:
    """Raises Refusal where sequences of this target cannot share a forward."""
    from specdec_lib.models.llama.decoder import Transformer

    if not isinstance(target, Transformer):
        raise Refusal(f"batches need a target that our own decoder runs, and this one is a {type(target).__name__}:"
                      " run it with --batch 1")
