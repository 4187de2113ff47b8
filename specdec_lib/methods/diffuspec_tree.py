"""DiffuSpec with a tree: all beams of its search are verified together instead of the best one alone.

Source: ours, on DiffuSpec (Li et al. 2025, arXiv 2510.02358). The best path comes first and the others add the nodes in
which they differ, so no token of the best path is lost while the nodes suffice for it. Cost: as `diffuspec`, with a
wider verification.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit, naming
from specdec_lib.types import Method


def make(kit: Kit, drafter: str = "diffusion-lm", nodes: int | None = None, depth: int | None = None,
         rule: str = "corrected", shortest: int = 2, longest: int | None = None, growth: int = 2, rate: float = 0.5,
         share: float = 0.6, margin: int = 2, beam: int = 3, mass: float = 0.8, cap: int = 15, weight: float = 0.5,
         score: str = "mean", keep_end: bool = True, block: int | None = None, first: int = 1) -> Method:
    """The parameters of `diffuspec`, and `nodes` in total, by default those that the cost curve allows.

    `longest` defaults to two thirds of them, so that the tree holds more than the best path.
    """
    nodes = kit.nodes if nodes is None else nodes
    longest = max(1, 2 * nodes // 3) if longest is None else longest
    when = (kit.part("fixed", depth=depth, width=beam, nodes=nodes) if depth is not None else
            kit.part("adaptive-length", rule=rule, shortest=min(shortest, longest), longest=longest, growth=growth,
                     rate=rate, share=share, margin=margin, width=beam, nodes=nodes))
    what = kit.part("path-search", drafter=drafter, beam=beam, mass=mass, cap=cap, weight=weight, score=score,
                    keep_end=keep_end, tree=True, block=block, first=first)
    return Method(when, what, kit.part("match"))


CARD = Card("diffuspec-tree", idea="verify all beams of the search over a diffusion drafter's slots",
            source="ours, on DiffuSpec, arXiv 2510.02358", make=make,
            parts=("adaptive-length", "fixed", "path-search", "match"), named=naming(drafter="what"),
            notebook="41_diffuspec")
