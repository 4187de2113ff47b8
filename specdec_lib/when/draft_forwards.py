"""Draft forwards: as many forwards of the drafter as fit into one of the target, however many tokens each gives.

Source: Double (arXiv 2601.05524): the speed ratio C bounds the forwards of the drafter, not its tokens. Both times are
measured in the decode's own rounds, as `speed-ratio` does it, but per forward: the note FORWARDS of a round's budget
says how many it allowed, and a drafter that stopped earlier makes a forward look cheaper than it is. Medians over the
last `window` rounds. Cost: no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from specdec_lib.cards import Card, Kit
from specdec_lib.types import FORWARDS, Budget, RandomNumbers, Refusal, Round, Session


@dataclass(frozen=True)
class DraftForwards:
    """`forwards` of the drafter each round, or, where it is None, what one forward of the target takes."""

    forwards: int | None = None                    # C
    retrieved: int = 8                             # tokens that a forward may give beyond its own
    first: int = 4                                 # until both times were measured
    longest: int = 16
    window: int = 8                                # rounds

    def __post_init__(self):
        if self.forwards is not None and self.forwards < 1 or self.retrieved < 0:
            raise Refusal(f"forwards must be at least 1 and retrieved zero or more, got {self.forwards} and"
                          f" {self.retrieved}")
        if not (1 <= self.first <= self.longest and self.window >= 1):
            raise Refusal("forwards must satisfy 1 <= first <= longest and the window hold a round, "
                          f"got {self.first}, {self.longest} and {self.window}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        forwards = self.measured(session) if self.forwards is None else self.forwards
        return Budget(forwards * (1 + self.retrieved), notes={FORWARDS: forwards})

    def measured(self, session: Session) -> int:
        """round(target seconds / drafter seconds a forward), from 1 to `longest`."""
        drafting = [one for one in session.rounds[-self.window:] if one.seconds.what > 0 and asked(one).notes]
        if not drafting:
            return self.first
        forward = median(one.seconds.target for one in drafting)
        step = median(one.seconds.what / asked(one).notes[FORWARDS] for one in drafting)
        return max(1, min(self.longest, round(forward / step)))


def asked(round: Round) -> Budget:
    """The budget of the draft that was made in this round's seconds."""
    return (round.ahead and round.ahead.asked) or round.budget


def make(kit: Kit, forwards: int | None = None, retrieved: int = 8, first: int = 4, longest: int = 16,
         window: int = 8) -> DraftForwards:
    return DraftForwards(forwards, retrieved, first, longest, window)


CARD = Card("draft-forwards", idea="as many forwards of the drafter as fit into one of the target",
            source="Double, arXiv 2601.05524", make=make, notebook="55_double")
