"""AdaEAGLE: predict the draft length before drafting, from the hidden state that produced the last token.

Source: AdaEAGLE (arXiv 2412.18910), sections 3.2 and 4.2. Formula: a trained predictor maps the last token and the
target's hidden state before it to a number; rounded and clamped to [0, `longest`], it is the draft length k. The
combined rule (the paper's DDD) stops after n tokens where n >= k and the log-probabilities of the chain sum to less
than -0.6, so the longer of the two lengths counts. It is called after each drafted token, so it drafts at least one
token, even with k = 0. Cost: one pass of the predictor per round, no forward of the target. A predictor belongs to one
drafter and is trained on greedy chains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, prod
from typing import TYPE_CHECKING, cast

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Budget, RandomNumbers, Refusal, Session, Trail

if TYPE_CHECKING:
    from specdec_lib.heads.base import Target

NAME, NEED = "adaeagle", "length-predictor"
Predict = Callable[[tuple[int, ...]], float | None]    # tokens -> length; None if no state exists yet


@dataclass(frozen=True)
class LongEnough:
    """Stop after at least `length` tokens whose probabilities multiply to less than exp(`least`)."""

    length: int
    least: float

    def __call__(self, trail: Trail) -> bool:
        return len(trail) >= self.length and prod(stat.prob for stat in trail) < exp(self.least)


@dataclass(frozen=True)
class AdaEagle:
    """Drafts the length that `predict` gives, at most `longest`; `combined` goes on while the chain is probable."""

    predict: Predict
    longest: int
    combined: bool = False
    least: float = -0.6                            # log-probability of the whole chain, nats

    def __post_init__(self):
        if self.longest < 0 or not self.least <= 0:
            raise Refusal("longest must be zero or more and least, a log-probability, zero or less, got "
                          f"{self.longest} and {self.least}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        length = self.length(session.tokens)
        return Budget(self.longest, stop=LongEnough(length, self.least)) if self.combined else Budget(length)

    def length(self, tokens: tuple[int, ...]) -> int:
        """The predicted length after these tokens; 0 where no state exists to predict it from."""
        number = self.predict(tokens)
        return 0 if number is None else min(max(round(number), 0), self.longest)


def make(kit: Kit, drafter: str = "", longest: int | None = None, combined: bool = False,
         least: float = -0.6) -> AdaEagle:
    """`drafter` names whose predictor is used: by default the drafter of the method being built, or else `eagle`.

    `longest` defaults to the maximal length in training.
    """
    from specdec_lib.heads.length import length_predictor

    checkpoint = kit.checkpoints[NEED]
    most: int = checkpoint.meta["longest"] if longest is None else longest
    whose = drafter or kit.drafter or "eagle"
    return AdaEagle(length_predictor(checkpoint, whose, cast("Target", kit.target)), most, combined, least)


CARD = Card(NAME, idea="a trained predictor sets the draft length", source="AdaEAGLE, arXiv 2412.18910",
            make=make, needs=(NEED,), notebook="15_when_adaeagle", reads_states=True)
