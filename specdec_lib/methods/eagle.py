"""EAGLE: each round, a trained layer drafts a few tokens from the target's hidden states, verified by rejection.

Source: Li et al. 2025 (EAGLE-3), drafting a chain; for trees see EAGLE-2. Cost: one layer per drafted token.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, depth: int = 4, text_tokens: bool = True) -> Method:
    """`depth` tokens per round, those that the head was trained for or, with `text_tokens`, of the text as well."""
    return Method(kit.part("fixed", depth=depth), kit.part("eagle", text_tokens=text_tokens), kit.part("rejection"))


CARD = Card("eagle", idea="one trained layer drafts from the target's hidden states", source="Li et al. 2025, EAGLE-3",
            make=make, parts=("fixed", "eagle", "rejection"), notebook="24_what_eagle")
