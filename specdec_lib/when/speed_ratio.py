"""Speed ratio: as many tokens as the drafter makes while the target computes one forward.

Source: PEARL (Liu et al. 2024, arXiv 2408.11850) and DuoDecoding (Lv et al. 2025, arXiv 2503.00784) set the draft
length to T_target / T_drafter, so that neither side waits. Both times are measured in the decode's own rounds: medians
over the last `window` rounds, so that one slow round counts little. With `by_level` the drafter's time is that of a
level of its tree, for a budget that holds for each of several branches (SpecBranch). Cost: no model pass. The lengths
depend on the machine. The greedy tokens of a lossless method do not, nor does the distribution of drawn ones; which are
drawn does, also from run to run with one seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Budget, RandomNumbers, Refusal, Round, Session


@dataclass(frozen=True)
class SpeedRatio:
    """round(target seconds / drafter seconds a token), at most `longest`; `first` until both were measured."""

    first: int = 4
    longest: int = 16
    window: int = 8                                # rounds
    by_level: bool = False                         # branches drafted side by side: so many levels, not tokens

    def __post_init__(self):
        if not (1 <= self.first <= self.longest and self.window >= 1):
            raise Refusal("lengths must satisfy 1 <= first <= longest and the window hold a round, "
                          f"got {self.first}, {self.longest} and {self.window}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        drafting = [round for round in session.rounds[-self.window:] if drafted(round) and round.seconds.what > 0]
        if not drafting:
            return Budget(self.first)
        forward = median(round.seconds.target for round in drafting)
        step = median(round.seconds.what / (levels(round) if self.by_level else drafted(round)) for round in drafting)
        return Budget(max(1, min(self.longest, round(forward / step))))


def drafted(round: Round) -> int:
    """Tokens that this round's drafter made."""
    if round.ahead is None:
        return len(round.draft)
    return round.ahead.tokens if round.ahead.made is None else round.ahead.made


def levels(round: Round) -> int:
    """Levels of what this round's drafter made: each is one forward of a drafter that drafts level by level."""
    if round.ahead is None:
        return round.draft.depth
    return drafted(round) if round.ahead.levels is None else round.ahead.levels


def make(kit: Kit, first: int = 4, longest: int = 16, window: int = 8, by_level: bool = False) -> SpeedRatio:
    return SpeedRatio(first, longest, window, by_level)


CARD = Card("speed-ratio", idea="as many tokens as are drafted during one target forward", source="Liu et al. 2024",
            make=make, notebook="51_pearl")
