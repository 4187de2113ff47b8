"""Plain speculative sampling: a fixed number of tokens from a draft model, verified by rejection.

Source: Leviathan et al. 2023. The drafter is the model named by --draft; else the trained `draft-lm`, if a checkpoint
fits the target; else the target's own first layers, untrained, a weak baseline (`--draft first-layers` selects them).
Cost: one small forward per drafted token.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, depth: int = 4) -> Method:
    """`depth` tokens per round."""
    return Method(kit.part("fixed", depth=depth), kit.part("draft-model"), kit.part("rejection"))


CARD = Card("draft-model", idea="a small model drafts, the ratio p/q decides", source="Leviathan et al. 2023",
            make=make, parts=("fixed", "draft-model", "rejection"), notebook="23_what_draft_model")
