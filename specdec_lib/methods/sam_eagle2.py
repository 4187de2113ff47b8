"""SAM with EAGLE-2: a match is copied; without one, the head drafts its tree.

Source: Hu et al. 2024 (SAM-Decoding with EAGLE-2 as its second drafter); the published threshold is 5, with copies of
39 tokens after the known one and trees of 63 nodes in its own code, of 60 in Spec-Bench's EAGLE-2. Ours is 3, because a
copy costs no step of the head; on the tuning prompts 3 is 1.08 times (1.01 to 1.17) as fast as 1 with the head that is
shipped now (`data/results/tuning`). Copies are as long as the nodes that the cost curve allows, 6 there. Before its
next draft the head processes in one step the tokens it missed while others drafted. Cost: no draft forward in rounds
that copy, else EAGLE-2's.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import wide_enough
from specdec_lib.types import Method


def make(kit: Kit, threshold: int = 3, copy: int | None = None, depth: int = 5, width: int = 4,
         nodes: int | None = None, least: float = 0.25, price: float | None = None) -> Method:
    """Copies `copy` tokens after a match worth `threshold` tokens, else drafts a tree with the parameters of `eagle2`.

    `copy` defaults to the nodes that the cost curve allows, and `nodes` to twice as many, each of which is worth its
    row.
    """
    nodes = 2 * kit.nodes if nodes is None else nodes
    width = wide_enough(width, depth, nodes)
    when = kit.part("match-length", threshold=threshold, other="eagle2", copy=kit.nodes if copy is None else copy,
                    depth=depth, width=width, nodes=nodes, least=least)
    what = kit.part("switch", drafters={"suffix-automaton": {}, "eagle2": {"price": price}})
    return Method(when, what, kit.part("match"))


CARD = Card("sam+eagle2", idea="copy long matches, else a trained layer's most probable tree",
            source="Hu et al. 2024, SAM-Decoding", make=make,
            parts=("match-length", "suffix-automaton", "eagle2", "switch", "match"), notebook="24_what_eagle")
