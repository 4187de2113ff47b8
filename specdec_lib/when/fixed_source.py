"""Fixed source: the same drafter every round, with the same budget.

Source: ours, a baseline for every rule that chooses between drafters: `always` names one drafter, `never` the other.
The switch still passes over a drafter whose draft is empty, so a round without a draft occurs only if all are empty.
Cost: no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Budget, RandomNumbers, Session


@dataclass(frozen=True)
class FixedSource:
    """The same `budget` every round."""

    budget: Budget

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        return self.budget


def make(kit: Kit, source: str = "", depth: int | None = None, width: int = 8,
         nodes: int | None = None) -> FixedSource:
    """`source` names a drafter of the switch, "" the first; depth and nodes default to what the cost curve allows."""
    depth, nodes = kit.nodes if depth is None else depth, kit.nodes if nodes is None else nodes
    return FixedSource(Budget.of(source, depth, width, nodes))


CARD = Card("one-source", idea="the same drafter every round", source="ours, a baseline", make=make,
            notebook="11_when_entropy_trigger")
