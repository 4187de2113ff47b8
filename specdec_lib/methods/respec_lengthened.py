"""ReSpec whose head's tree goes on with copies and recycled successors: `respec` with the part `lengthened`.

Source: ReSpec (arXiv 2511.01282) for who drafts when; ours that the head's tree goes on below its leaves, where a node
costs no step of the head. Lossless. Cost: as `respec`, with wider forwards. On the tuning prompts it gets more tokens
from a forward than `respec` and is not told from it in speed, with AMX (0.97, 0.93 to 1.01; `data/results/lengthened`)
and on an EPYC with AVX-512 (1.01, 0.98 to 1.04; `data/results/tuning`).
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.methods import respec
from specdec_lib.types import Method


def make(kit: Kit, further: float | None = None, theta: float = 5.0, penalty: float = 1.0, look_back: int = 3,
         reading: str = "switch", least: float = 0.6, shape: str = "likely", depth: int = 5, width: int = 4,
         nodes: int | None = None, grow: float = 0.25, price: float | None = None,
         counts: float | None = None) -> Method:
    """Added nodes have paths of at least the probability `further`, by default from the curve; the rest as `respec`."""
    return respec.make(kit, theta, penalty, look_back, reading, least=least, shape=shape, depth=depth, width=width,
                       nodes=nodes, grow=grow, price=price, lengthen=True, counts=counts, further=further)


CARD = Card("respec+lengthened", idea="ReSpec whose head's tree goes on with copies and recycled successors",
            source="ours, on ReSpec, arXiv 2511.01282", make=make, notebook="40_respec", off_path=True,
            parts=("entropy-trigger", "feedback-retrieval", "eagle2", "lengthened", "switch", "match"))
