"""Early-exit self-speculation: the target's first layers draft, and all layers verify.

Source: Elhoushi et al. 2024 (LayerSkip); here the target is unchanged, and only the exit is trained. Cost: the first
layers per drafted token; verification reuses their rows.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, depth: int = 3, layer: int | None = None) -> Method:
    """`depth` tokens per round; `layer` defaults to the lowest one with a trained exit."""
    return Method(kit.part("fixed", depth=depth), kit.part("early-exit", layer=layer), kit.part("rejection"))


CARD = Card("early-exit", idea="the target's first layers draft, all layers verify",
            source="Elhoushi et al. 2024, LayerSkip", make=make, parts=("fixed", "early-exit", "rejection"),
            notebook="26_what_early_exit")
