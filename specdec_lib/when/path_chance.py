"""Path chance: stop drafting where the whole path has become unlikely.

Source: the score of EAGLE-2 (Li et al. 2024), the product of the draft's own chances along a path, used as a stop. A
level of drafting costs a step of the drafter whether or not anything below it is accepted, so it pays while the
likeliest open path has more chance than that step costs. A chain stops behind its unlikely token, a tree grows no level
below one whose best new path is unlikely. The token that fired stays, so the rule is lossless when sampling as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.trees import stop_when_unlikely
from specdec_lib.types import Budget, Card, Kit, Refusal, Session


@dataclass(frozen=True)
class PathChance:
    """Up to `depth`, `width` and `nodes`, and no further below a path of less chance than `least`."""

    depth: int
    width: int = 1
    nodes: int | None = None
    least: float = 0.4

    def __post_init__(self):
        if not 0 <= self.least <= 1:
            raise Refusal(f"least is a chance between 0 and 1, got {self.least}")
        if self.depth < 0 or self.width < 1 or (self.nodes is not None and self.nodes < 0):
            raise Refusal(f"a budget needs depth >= 0, width >= 1 and nodes >= 0, got {self}")

    def __call__(self, session: Session, dice) -> Budget:
        return stop_when_unlikely(Budget(self.depth, self.width, self.nodes), self.least)


def make(kit: Kit, depth: int | None = None, width: int = 1, nodes: int | None = None,
         least: float = 0.4) -> PathChance:
    """Depth defaults to the nodes that the measured cost curve allows; `least` 0 never stops."""
    return PathChance(kit.nodes if depth is None else depth, width, nodes, least)


CARD = Card("path-chance", idea="no further where the whole path has become unlikely",
            source="Li et al. 2024, EAGLE-2's score", make=make, notebook="24_what_eagle")
