"""Random source: retrieval drafts in a given share of rounds, chosen at random.

Source: ours, a baseline for triggers: it fires as often and reads nothing. It draws from its own random numbers, keyed
by seed, prompt and position, because at temperature 0 the loop's dice raise an error on a draw. Two calls on the same
session give the same budget, and a run can be replayed from any round. Cost: no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.dice import Dice
from specdec_lib.types import Budget, RandomNumbers, Refusal, Session


@dataclass(frozen=True)
class RandomSource:
    """`retrieve` in a random share `rate` of rounds, and `model` in the others or after an empty draft."""

    retrieve: Budget
    model: Budget
    rate: float = 0.5
    seed: int = 0

    def __post_init__(self):
        if not 0 <= self.rate <= 1:
            raise Refusal(f"rate must be a share of rounds between 0 and 1, got {self.rate}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        own = Dice(self.seed).aside().fork("coin", session.id, session.prompt, len(session.tokens))
        return self.retrieve.then(self.model) if own.flip(self.rate) else self.model


def make(kit: Kit, rate: float = 0.5, seed: int = 0, retrieve: str = "feedback-retrieval", model: str = "eagle2",
         depth: int | None = None, width: int = 8, nodes: int | None = None) -> RandomSource:
    """Both drafters get the same budget; depth and nodes default to the nodes that the cost curve allows."""
    depth, nodes = kit.nodes if depth is None else depth, kit.nodes if nodes is None else nodes
    return RandomSource(Budget.of(retrieve, depth, width, nodes), Budget.of(model, depth, width, nodes), rate, seed)


CARD = Card("coin", idea="retrieve in a given share of rounds, at random", source="ours, a baseline", make=make,
            notebook="11_when_entropy_trigger")
