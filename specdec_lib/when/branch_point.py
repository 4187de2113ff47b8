"""Branch point: draft up to the first position at which the drafter's best token is unlikely.

Source: SpecBranch (arXiv 2506.01979), confidence-driven drafting: the position with a best probability below `epsilon`
is where the next draft branches, so drafting on beyond it would be wasted; where a predictor may keep the whole draft
(`specbranch(predict=...)`), `epsilon` is 0 and nothing stops it. The rule reads the raw softmax at temperature 1, not
the drawn token, and not the draft's first position, where it has branched already. The length is that of another
policy, for each branch. Cost: no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Budget, RandomNumbers, Refusal, Session, Trail, When


@dataclass(frozen=True)
class UncertainAfterFirst:
    """Stop at a token, but the first, whose row has no token as likely as `epsilon`."""

    epsilon: float

    def __call__(self, trail: Trail) -> bool:
        return len(trail) > 1 and trail[-1].first < self.epsilon


@dataclass(frozen=True)
class BranchPoint:
    """The budget of `length`, `width` branches wide, stopped at the next branch point."""

    length: When
    width: int = 3
    epsilon: float = 0.3                           # 0 never stops

    def __post_init__(self):
        Budget(width=self.width)                   # refuses an impossible width before the first round
        if not 0 <= self.epsilon <= 1:
            raise Refusal(f"epsilon must be a probability, from 0 to 1, got {self.epsilon}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        stop = UncertainAfterFirst(self.epsilon) if self.epsilon else None
        return replace(self.length(session, dice), width=self.width, stop=stop)


def make(kit: Kit, depth: int | None = None, width: int = 3, epsilon: float = 0.3) -> BranchPoint:
    """`depth` tokens a branch; None takes the measured speed ratio."""
    length = kit.part("speed-ratio", by_level=True) if depth is None else kit.part("fixed", depth=depth)
    return BranchPoint(length, width, epsilon)


CARD = Card("branch-point", idea="draft up to the next position where the drafter is uncertain",
            source="SpecBranch, arXiv 2506.01979", make=make, parts=("speed-ratio", "fixed"), notebook="52_specbranch")
