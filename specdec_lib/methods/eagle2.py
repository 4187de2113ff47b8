"""EAGLE-2: each round verifies the tree to which the head gives the highest probabilities.

Source: Li et al. 2024 (EAGLE-2). The published setting is 60 tokens, depth 5 and width 10; its 60 count the root and
its 5 the steps after the root's own, so here it is `eagle2(nodes=59, depth=6, width=10, least=0, price=0,
sharpness=1)`. Those sizes are for a GPU. Here the measured cost curve says how many nodes of a tree are worth their
rows (`cost.row_costs`), of at most twice those that cost little. The head's step for a level is paid even when no node
of the level is submitted, so no level is grown below a tree whose best new path has a lower probability than `least`.
On the tuning prompts that is 1.12 times (1.08 to 1.17) as fast as `eagle2(least=0, price=0)`, all twelve nodes in every
round (`data/results/tuning`). Width is 4, because a few rows cost the head little more than one.

Verified by `match`: nodes are deterministic, so `rejection` accepts a child with exactly the probability that the
target draws it. The two accept equally often, and `match` emits exactly plain decoding's tokens when sampling, too.
Cost: one forward of the head per level.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import wide_enough
from specdec_lib.types import Method


def make(kit: Kit, depth: int = 5, width: int = 4, nodes: int | None = None, least: float = 0.25,
         price: float | None = None, text_tokens: bool = True, sharpness: float | None = None,
         counts: float = 0.0) -> Method:
    """Nodes default to twice those that the cost curve allows, width to 4 or to what `depth` levels need for them.

    With a `price` a node is submitted from that path probability on, instead of where it is worth its row.

    With `text_tokens` the tree holds tokens of the text as well as those that the head was trained for. `sharpness` and
    `counts` are those of `what/eagle2.py`; EAGLE-2 counts nothing.
    """
    nodes = 2 * kit.nodes if nodes is None else nodes
    width = wide_enough(width, depth, nodes)
    when = kit.part("path-chance", depth=depth, width=width, nodes=nodes, least=least)
    return Method(when, kit.part("eagle2", price=price, text_tokens=text_tokens, sharpness=sharpness, counts=counts),
                  kit.part("match"))


CARD = Card("eagle2", idea="verify the tree that a trained layer finds most probable", source="Li et al. 2024, EAGLE-2",
            make=make, parts=("path-chance", "eagle2", "match"), notebook="24_what_eagle")
