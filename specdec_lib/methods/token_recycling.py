"""Token Recycling: each round verifies a small tree of the successors that the target last ranked highest.

Source: Luo et al. 2024, with the tree's size from the measured cost curve. Cost: no draft forward.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, depth: int | None = None, width: int = 8, nodes: int | None = None) -> Method:
    """Depth and nodes default to the number of nodes that the cost curve allows."""
    nodes = kit.nodes if nodes is None else nodes
    return Method(kit.part("fixed", depth=nodes if depth is None else depth, width=width, nodes=nodes),
                  kit.part("token-recycling"), kit.part("match"))


CARD = Card("token-recycling", idea="a tree of the successors that the target last ranked highest",
            source="Luo et al. 2024", make=make, parts=("fixed", "token-recycling", "match"),
            notebook="22_what_token_recycling", off_path=True)
