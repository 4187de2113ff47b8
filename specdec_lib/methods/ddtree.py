"""DDTree: each round verifies a tree of the likeliest paths through one block of slots.

Source: DDTree (arXiv 2604.12989), which drafts with DFlash, on a GPU and with slots that are independent of each other:
`ddtree(linked=False, price=0, nodes=64, top=32, width=32, depth=8)` comes closest to that. Here the block drafter's
correction joins the slots, see `what/slot_tree.py`, and the cost curve says which nodes are worth their row. The tree
uses five of the block's eight slots, because deeper nodes are hardly ever reached.

Verified by `match`: nodes are deterministic, so `rejection` would accept as often, and `match` emits exactly plain
decoding's tokens when sampling, too. Cost: one drafter forward per round.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit, naming
from specdec_lib.trees import wide_enough
from specdec_lib.types import Method


def make(kit: Kit, drafter: str = "block-diffusion", nodes: int | None = None, depth: int = 5, width: int = 4,
         price: float | None = None, top: int = 16, linked: bool = True, block: int | None = None) -> Method:
    """A slot has `top` candidates, and a node up to `width` children, or as many as `depth` levels need for the nodes.

    Without a price the cost curve says which nodes are worth their rows. `nodes`, by default twice those that the curve
    allows, bounds only trees whose nodes all are.
    """
    nodes = 2 * kit.nodes if nodes is None else nodes
    width = wide_enough(width, depth, nodes)
    what = kit.part("slot-tree", drafter=drafter, price=price, top=top, linked=linked, block=block)
    return Method(kit.part("fixed", depth=depth, width=width, nodes=nodes), what, kit.part("match"))


CARD = Card("ddtree", idea="verify the likeliest paths through one block's slots as a tree",
            source="DDTree, arXiv 2604.12989", make=make, parts=("fixed", "slot-tree", "match"),
            named=naming(drafter="what"), notebook="27b_what_slot_tree")
