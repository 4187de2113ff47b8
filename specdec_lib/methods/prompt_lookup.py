"""Prompt lookup: each round copies what followed the same n-gram last time.

Source: Saxena 2023. Cost: no second model, no training, no file on disk.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, depth: int | None = None, longest: int = 3, shortest: int = 1, mode: str = "last") -> Method:
    """`depth` defaults to the number of nodes that the cost curve allows."""
    return Method(kit.part("fixed", depth=depth),
                  kit.part("prompt-lookup", longest=longest, shortest=shortest, mode=mode), kit.part("match"))


CARD = Card("prompt-lookup", idea="copy what followed the same n-gram last time", source="Saxena 2023",
            make=make, parts=("fixed", "prompt-lookup", "match"), notebook="20_what_prompt_lookup")
