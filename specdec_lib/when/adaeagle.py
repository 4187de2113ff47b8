"""AdaEAGLE: how many tokens will be kept is predicted before drafting, from the state that produced the last token.

Source: AdaEAGLE (arXiv 2412.18910), sections 3.2 and 4.2. A trained predictor gives a number for the last token and
the target's state before it; rounded and held between 0 and `longest` it is the length k of the draft. The combined
rule (the paper's DDD) also follows the chain: it stops after n tokens where n >= k and the logarithms of their chances
sum to less than -0.6, so the longer of the two lengths counts. It is asked once a token has joined, so with k = 0 it
still draws one token. One predictor belongs to one drafter; it is trained for greedy chains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, prod

from specdec_lib.heads.length import length_predictor
from specdec_lib.types import Budget, Card, Kit, Refusal, Session, Trail

NAME, NEED = "adaeagle", "length-predictor"
Predict = Callable[[tuple[int, ...]], float | None]    # tokens -> length, None where there is nothing to tell it from


@dataclass(frozen=True)
class LongEnough:
    """Stop once there are `length` tokens and the chances along the path multiply to less than exp(`least`)."""

    length: int
    least: float

    def __call__(self, trail: Trail) -> bool:
        return len(trail) >= self.length and prod(stat.prob for stat in trail) < exp(self.least)


@dataclass(frozen=True)
class AdaEagle:
    """As many tokens as `predict` says will be kept, at most `longest`; if `combined`, on while the drafter is sure."""

    predict: Predict
    longest: int
    combined: bool = False
    least: float = -0.6                            # nats, of the whole chain

    def __post_init__(self):
        if self.longest < 0 or not self.least <= 0:
            raise Refusal(f"longest is zero or more and least a logarithm of chances, zero or less, got "
                          f"{self.longest} and {self.least}")

    def __call__(self, session: Session, dice) -> Budget:
        length = self.length(session.tokens)
        return Budget(self.longest, stop=LongEnough(length, self.least)) if self.combined else Budget(length)

    def length(self, tokens: tuple[int, ...]) -> int:
        """The predicted length after these tokens; 0 where there is nothing yet to predict it from."""
        number = self.predict(tokens)
        return 0 if number is None else min(max(round(number), 0), self.longest)


def make(kit: Kit, drafter: str = "", longest: int | None = None, combined: bool = False,
         least: float = -0.6) -> AdaEagle:
    """`drafter` names whose predictor is taken: by default that of the method which is built, or else `eagle`'s.

    `longest` defaults to the length up to which it was trained.
    """
    checkpoint = kit.checkpoints[NEED]
    longest = checkpoint.meta["longest"] if longest is None else longest
    whose = drafter or kit.drafter or "eagle"
    return AdaEagle(length_predictor(checkpoint, whose, kit.target), longest, combined, least)


CARD = Card(NAME, idea="a trained predictor says how many tokens will be kept", source="AdaEAGLE, arXiv 2412.18910",
            make=make, needs=(NEED,), notebook="15_when_adaeagle")
