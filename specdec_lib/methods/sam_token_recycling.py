"""SAM with Token Recycling: a match is copied; without one, a tree of the target's own alternatives is drafted.

Source: Hu et al. 2024 (SAM-Decoding with Token Recycling as its second drafter). No second model, no training. The
published threshold of 5 goes with chains of 40 tokens and wide trees. With a handful of nodes a tree is accepted less
often, and copying from 2 tokens on is better on the default target: 2.17 tokens per forward against 2.12 over 42 of its
own answers, and 1.96 against 1.89 over 48 other prompts that were not used to choose it (8 nodes). Cost: no draft
forward.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, threshold: int = 2, depth: int | None = None, width: int = 8, nodes: int | None = None) -> Method:
    """`threshold` is the shortest match to copy; depth and nodes default to what the cost curve allows."""
    when = kit.part("match-length", threshold=threshold, depth=depth, width=width, nodes=nodes)
    what = kit.part("switch", drafters=("suffix-automaton", "token-recycling"))
    return Method(when, what, kit.part("match"))


CARD = Card("sam+token-recycling", idea="copy long matches, else a tree of the target's own alternatives",
            source="Hu et al. 2024, SAM-Decoding", make=make,
            parts=("match-length", "suffix-automaton", "token-recycling", "switch", "match"),
            notebook="21_what_suffix_automaton", off_path=True)
