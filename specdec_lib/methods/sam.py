"""SAM: each round copies what followed the longest suffix that occurred earlier.

Source: Hu et al. 2024 (SAM-Decoding) without its second drafter, so any match is copied, at any length. Cost: no draft
forward.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, depth: int | None = None, mode: str = "recent", threshold: int = 1) -> Method:
    """`depth` defaults to the number of nodes that the cost curve allows."""
    return Method(kit.part("fixed", depth=depth),
                  kit.part("suffix-automaton", mode=mode, threshold=threshold), kit.part("match"))


CARD = Card("sam", idea="copy what followed the longest suffix that occurred earlier",
            source="Hu et al. 2024, SAM-Decoding", make=make, parts=("fixed", "suffix-automaton", "match"),
            notebook="21_what_suffix_automaton")
