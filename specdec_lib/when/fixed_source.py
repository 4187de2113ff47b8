"""Fixed source: the same drafter every round, with the same budget.

Source: ours, a baseline for every rule that chooses between drafters: `always` names one drafter, `never` the other.
The switch still passes over a drafter whose draft is empty, so a round without a draft occurs only if all are empty;
the next drafter may have a budget of its own. Cost: no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import stop_when_unlikely
from specdec_lib.types import Budget, RandomNumbers, Session


@dataclass(frozen=True)
class FixedSource:
    """The same `budget` every round."""

    budget: Budget

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        return self.budget


def make(kit: Kit, source: str = "", depth: int | None = None, width: int = 8, nodes: int | None = None,
         other: str = "", other_depth: int | None = None, other_width: int = 8, other_nodes: int | None = None,
         least: float = 0.0) -> FixedSource:
    """`source` names a drafter of the switch, "" the first; depths and nodes default to what the cost curve allows.

    After an empty draft the drafter `other` is asked, where one is named, with the sizes that are called `other` here;
    `least` stops its tree below a path of lower probability.
    """
    budget = Budget.of(source, *_sizes(kit, depth, width, nodes))
    if not other:
        return FixedSource(budget)
    return FixedSource(budget.then(stop_when_unlikely(
        Budget.of(other, *_sizes(kit, other_depth, other_width, other_nodes)), least)))


def _sizes(kit: Kit, depth: int | None, width: int, nodes: int | None) -> tuple[int, int, int]:
    return kit.nodes if depth is None else depth, width, kit.nodes if nodes is None else nodes


CARD = Card("one-source", idea="the same drafter every round", source="ours, a baseline", make=make,
            notebook="11_when_entropy_trigger")
