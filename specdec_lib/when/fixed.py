"""Fixed: the same budget every round; depth 0 is plain decoding.

Source: Leviathan et al. 2023. It provides three baselines for every policy: `always` drafts every round, `never` has
depth 0, and a `rate` below 1 drafts in a random share of rounds, as a baseline for triggers. Cost: no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Budget, RandomNumbers, Refusal, Session


@dataclass(frozen=True)
class Fixed:
    """Constant depth, width and nodes; with a `rate` below 1, plain decoding in the other rounds."""

    depth: int
    width: int = 1
    nodes: int | None = None
    rate: float = 1.0                              # share of rounds that draft

    def __post_init__(self):
        Budget(self.depth, self.width, self.nodes)           # refuses impossible sizes before the first round
        if not 0 <= self.rate <= 1:
            raise Refusal(f"rate must be a share of rounds between 0 and 1, got {self.rate}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        if not dice.aside().flip(self.rate):
            return Budget()
        return Budget(self.depth, self.width, self.nodes)


def make(kit: Kit, depth: int | None = None, width: int = 1, nodes: int | None = None, rate: float = 1.0) -> Fixed:
    """Depth defaults to the number of nodes that the measured cost curve allows."""
    return Fixed(kit.nodes if depth is None else depth, width, nodes, rate)


CARD = Card("fixed", idea="the same depth every round", source="Leviathan et al. 2023", make=make,
            notebook="10_when_fixed")
