"""EAGLE-2: each round verifies the tree that the head is surest of.

Source: Li et al. 2024 (EAGLE-2). The published setting is 60 tokens, depth 5 and width 10; its 60 count the root and
its 5 the steps after the root's own, so here it reads `eagle2(nodes=59, depth=6, width=10)`. Those sizes are a GPU's:
nodes default to what the cost curve allows. A step of the head is paid even when no node of its level is submitted, so
depth ends at 5, and a tree of five to eight nodes grows only while its best open node could still have a child in it.
Width is 4, since a few rows cost little more than one: on the curve in data/cost a forward of 4 takes the target 8 %
longer than one of 1, a forward of 8 takes 26 % longer, and the head is a layer like the target's own.

Verified by `match`: nodes are certain, and then `rejection` accepts a child with the very chance that the target draws
it, so the two accept equally often, and `match` emits plain decoding's own tokens when sampling, too.
"""

from __future__ import annotations

from specdec_lib.types import Card, Kit, Method


def make(kit: Kit, depth: int = 5, width: int | None = None, nodes: int | None = None) -> Method:
    """Nodes default to what the cost curve allows; width to 4, or to what `depth` levels need to hold them."""
    nodes = kit.nodes if nodes is None else nodes
    width = max(4, -(-nodes // max(1, depth))) if width is None else width
    return Method(kit.part("fixed", depth=depth, width=width, nodes=nodes), kit.part("eagle2"), kit.part("match"))


CARD = Card("eagle2", idea="verify the tree that a trained layer is surest of", source="Li et al. 2024, EAGLE-2",
            make=make, parts=("fixed", "eagle2", "match"), notebook="24_what_eagle")
