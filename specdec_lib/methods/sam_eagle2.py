"""SAM with EAGLE-2: a match is copied; without one, the head drafts its tree.

Source: Hu et al. 2024 (SAM-Decoding with EAGLE-2 as its second drafter); the published threshold is 5, with copies
of 40 tokens and trees of 60. The default of 2 is that of `sam+token-recycling`: few nodes promise little in a tree, and
a copy costs no step of the head. It was measured there and not with this head, whose trees promise more, so it is the
first number to try again. The head reads what it missed while others drafted in one step when it is asked next.
"""

from __future__ import annotations

from dataclasses import replace

from specdec_lib.types import Card, Kit, Method


def make(kit: Kit, threshold: int = 2, copy: int | None = None, depth: int = 5, width: int | None = None,
         nodes: int | None = None) -> Method:
    """`threshold` tokens of match to copy `copy` tokens, else a tree of `depth`, `width` and `nodes`.

    Copy and nodes default to what the cost curve allows, width to 4 or what `depth` levels need to hold the nodes.
    """
    nodes = kit.nodes if nodes is None else nodes
    width = max(4, -(-nodes // max(1, depth))) if width is None else width
    when = kit.part("match-length", threshold=threshold, other="eagle2", depth=copy, width=width, nodes=nodes)
    when = replace(when, other=replace(when.other, depth=depth))       # a copy costs nothing a token, a level a step
    return Method(when, kit.part("switch", drafters=("suffix-automaton", "eagle2")), kit.part("match"))


CARD = Card("sam+eagle2", idea="copy long matches, else the tree that a trained layer is surest of",
            source="Hu et al. 2024, SAM-Decoding", make=make,
            parts=("match-length", "suffix-automaton", "eagle2", "switch", "match"),
            notebook="24_what_eagle")
