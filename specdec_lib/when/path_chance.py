"""Path probability: stop drafting where the probability of the whole path is low.

Source: the score of EAGLE-2 (Li et al. 2024), the product of the drafter's probabilities along a path, used as a stop
rule. A level of drafting costs one step of the drafter whether or not its tokens are accepted, so it pays while the
most probable open path has a higher probability than that step costs. A chain stops after its low-probability token; a
tree grows no level below one whose best new path is below `least`. The token at which the rule fires stays in the
draft, so the rule is lossless when sampling as well. Cost: no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import stop_when_unlikely
from specdec_lib.types import Budget, RandomNumbers, Refusal, Session


@dataclass(frozen=True)
class PathChance:
    """Up to `depth`, `width` and `nodes`; stops below a path of lower probability than `least`."""

    depth: int
    width: int = 1
    nodes: int | None = None
    least: float = 0.4

    def __post_init__(self):
        if not 0 <= self.least <= 1:
            raise Refusal(f"least must be a probability between 0 and 1, got {self.least}")
        Budget(self.depth, self.width, self.nodes)           # refuses impossible sizes before the first round

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        return stop_when_unlikely(Budget(self.depth, self.width, self.nodes), self.least)


def make(kit: Kit, depth: int | None = None, width: int = 1, nodes: int | None = None,
         least: float = 0.4) -> PathChance:
    """Depth defaults to the number of nodes that the measured cost curve allows; `least=0` never stops."""
    return PathChance(kit.nodes if depth is None else depth, width, nodes, least)


CARD = Card("path-chance", idea="stop where the probability of the whole path is low",
            source="Li et al. 2024, EAGLE-2's score", make=make, notebook="24_what_eagle")
