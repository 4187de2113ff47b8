"""ReSpec for any model: Token Recycling drafts where ReSpec uses its trained head.

Source: ReSpec (arXiv 2511.01282) with the second drafter of Luo et al. 2024 (Token Recycling), which needs no training,
so it runs with any target. Lossless. Cost: no draft forward.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, theta: float = 5.0, penalty: float = 1.0, look_back: int = 3, reading: str = "switch",
         least: float = 0.3, shape: str = "likely", copy: int | None = None, depth: int | None = None, width: int = 8,
         nodes: int | None = None) -> Method:
    """The parameters of `respec`, with trees of `depth`, `width` and `nodes` where nothing is copied."""
    nodes = kit.nodes if nodes is None else nodes
    copy = 4 * nodes if copy is None else copy
    when = kit.part("entropy-trigger", threshold=theta, penalty=penalty, look_back=look_back, reading=reading,
                    model="token-recycling", depth=copy, nodes=copy, width=width,
                    model_depth=nodes if depth is None else depth, model_nodes=nodes)
    what = kit.part("switch", drafters={"feedback-retrieval": {"least": least, "shape": shape}, "token-recycling": {}})
    return Method(when, what, kit.part("match"))


CARD = Card("respec+token-recycling", idea="ReSpec with Token Recycling in place of a trained head",
            source="ours, on ReSpec, arXiv 2511.01282", make=make, off_path=True, notebook="40_respec",
            parts=("entropy-trigger", "feedback-retrieval", "token-recycling", "switch", "match"))
