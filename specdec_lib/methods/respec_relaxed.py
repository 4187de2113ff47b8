"""ReSpec with relaxed verification: like `respec`, but a copied token may differ from the target's choice.

Source: ReSpec (arXiv 2511.01282). Its relaxed rule is not known; ours accepts a copied token among the target's three
best with at least half the probability of the first, at most twice a round. Lossy: the text is not plain decoding's.
Cost: as `respec`.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.methods import respec
from specdec_lib.types import Method


def make(kit: Kit, rule: str = "rank-margin", rank: int = 3, margin: float = 0.5, eps: float = 0.09, delta: float = 0.3,
         most: int = 2, theta: float = 5.0, penalty: float = 1.0, look_back: int = 3, reading: str = "switch",
         least: float = 0.6, shape: str = "likely", nodes: int | None = None) -> Method:
    """The parameters up to `most` are those of the relaxed verification, the others those of `respec`."""
    strict = respec.make(kit, theta, penalty, look_back, reading, least=least, shape=shape, nodes=nodes)
    relaxed = kit.part("relaxed", rule=rule, rank=rank, margin=margin, eps=eps, delta=delta, most=most)
    return strict._replace(how=relaxed)


CARD = Card("respec-relaxed", idea="ReSpec, with a relaxed rule for copied tokens",
            source="ReSpec, arXiv 2511.01282", make=make, lossless=False, off_path=True, notebook="40_respec",
            parts=("entropy-trigger", "feedback-retrieval", "eagle2", "switch", "relaxed"))
