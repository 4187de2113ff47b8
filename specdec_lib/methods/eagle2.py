"""EAGLE-2: each round verifies the tree that the head is surest of.

Source: Li et al. 2024 (EAGLE-2). The published setting is 60 tokens, depth 5 and width 10; its 60 count the root and
its 5 the steps after the root's own, so here it reads `eagle2(nodes=59, depth=6, width=10, least=0, price=0)`. Those
sizes are a GPU's: nodes default to what the cost curve allows, and two more limits say what is worth its time. A step
of the head is paid even when no node of its level is submitted, so no level is grown below a tree whose best new path
has a smaller chance than `least`; and a node of a smaller chance than `price` is not submitted. On the tuning prompts
the two make it 1.13 times (1.10 to 1.17) as fast (`data/results/tuning`). Width is 4, since a few rows cost the head
little more than one.

Verified by `match`: nodes are certain, and then `rejection` accepts a child with the very chance that the target draws
it, so the two accept equally often, and `match` emits plain decoding's own tokens when sampling, too.
"""

from __future__ import annotations

from specdec_lib.types import Card, Kit, Method


def make(kit: Kit, depth: int = 5, width: int = 4, nodes: int | None = None, least: float = 0.4,
         price: float | None = None) -> Method:
    """Nodes and price default to what the cost curve says, width to 4, or to what `depth` levels need to hold them."""
    nodes = kit.nodes if nodes is None else nodes
    width = max(width, -(-nodes // max(1, depth)))
    when = kit.part("path-chance", depth=depth, width=width, nodes=nodes, least=least)
    return Method(when, kit.part("eagle2", price=price), kit.part("match"))


CARD = Card("eagle2", idea="verify the tree that a trained layer is surest of", source="Li et al. 2024, EAGLE-2",
            make=make, parts=("path-chance", "eagle2", "match"), notebook="24_what_eagle")
