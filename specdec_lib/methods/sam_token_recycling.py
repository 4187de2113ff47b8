"""SAM with Token Recycling: a long match is copied, in all other rounds the target's own alternatives are tried.

Source: Hu et al. 2024 (SAM-Decoding with Token Recycling as its second drafter). No second model, no training.
"""

from __future__ import annotations

from specdec_lib.types import Card, Kit, Method


def make(kit: Kit, threshold: int = 5, depth: int | None = None, width: int = 8,
         nodes: int | None = None) -> Method:
    """`threshold` tokens of match to copy; depth and nodes default to the nodes that the cost curve allows."""
    when = kit.part("match-length", threshold=threshold, depth=depth, width=width, nodes=nodes)
    what = kit.part("switch", drafters=("suffix-automaton", "token-recycling"))
    return Method(when, what, kit.part("match"))


CARD = Card("sam+token-recycling", idea="copy long matches, else a tree of the target's own alternatives",
            source="Hu et al. 2024, SAM-Decoding", make=make,
            parts=("match-length", "suffix-automaton", "token-recycling", "switch", "match"),
            notebook="21_what_suffix_automaton", off_path=True)
