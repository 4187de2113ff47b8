"""EAGLE: each round a trained layer drafts a few tokens from the target's features, kept by rejection.

Source: Li et al. 2025 (EAGLE-3), drafting a chain; its trees come with EAGLE-2.
"""

from __future__ import annotations

from specdec_lib.types import Card, Kit, Method


def make(kit: Kit, depth: int = 4) -> Method:
    """`depth` tokens per round."""
    return Method(kit.part("fixed", depth=depth), kit.part("eagle"), kit.part("rejection"))


CARD = Card("eagle", idea="one trained layer drafts from the target's features", source="Li et al. 2025, EAGLE-3",
            make=make, parts=("fixed", "eagle", "rejection"), notebook="24_what_eagle")
