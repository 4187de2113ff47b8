"""AdaEDL: stop drafting where an entropy estimate of acceptance falls below a threshold that adapts to the results.

Source: AdaEDL (arXiv 2410.18351), whose rule we know at second hand: stop where 1 - sqrt(rate * H) is below lambda (H
in nats, rate 0.2). The update of lambda was read in the code of Draft & Verify (arXiv 2309.08168), which AdaEDL is said
to follow. After a round that accepted m of n drafted tokens:

    AR     <- inertia * AR + (1 - inertia) * m / n
    wanted <- lambda + step if AR < target_acceptance else lambda - step
    lambda <- smooth * lambda + (1 - smooth) * wanted

With the published numbers lambda moves by 0.001 a round. AR starts at 0, so the first rounds raise lambda. Both are
computed from the session's rounds and start again with each prompt. Ours: lambda starts at 0.4 and stays within [0, 1].
Cost: no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from typing import NamedTuple

from specdec_lib.cards import Card, Kit
from specdec_lib.running_fold import RunningFold
from specdec_lib.types import Budget, RandomNumbers, Refusal, Round, Session, Trail


class Averages(NamedTuple):
    """The state of AdaEDL between rounds."""

    threshold: float                               # lambda
    acceptance: float = 0.0                        # AR


@dataclass(frozen=True)
class LowAcceptance:
    """Stop where 1 - sqrt(rate * entropy) of the last token's distribution is below the threshold."""

    threshold: float
    rate: float

    def __call__(self, trail: Trail) -> bool:
        return bool(trail) and 1 - sqrt(self.rate * trail[-1].entropy) < self.threshold


@dataclass(frozen=True)
class AdaEdl:
    """Up to `depth` tokens, fewer where the estimated acceptance is below an adaptive threshold."""

    depth: int
    start: float = 0.4                             # lambda before the first round; ours, the paper's was not found
    rate: float = 0.2                              # gamma
    target_acceptance: float = 0.9                 # alpha
    inertia: float = 0.5                           # beta1
    smooth: float = 0.9                            # beta2
    step: float = 0.01                             # epsilon
    hold: bool = False                             # Draft & Verify: lambda does not fall after a full-length draft
    fold: RunningFold = field(default_factory=RunningFold, init=False, repr=False, compare=False)

    def __post_init__(self):
        shares = self.start, self.target_acceptance, self.inertia, self.smooth
        if not all(0 <= share <= 1 for share in shares):
            raise Refusal(f"start, target_acceptance, inertia and smooth must lie between 0 and 1, got {shares}")
        if self.depth < 0 or not self.rate >= 0 or not self.step >= 0:
            raise Refusal(f"depth, rate and step must be zero or more, got {self.depth}, {self.rate} and {self.step}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        return Budget(self.depth, stop=LowAcceptance(self.averages(session).threshold, self.rate))

    def averages(self, session: Session) -> Averages:
        """Threshold and acceptance after the session's rounds."""
        return self.fold(self.next, session.rounds, Averages(self.start))

    def next(self, now: Averages, round: Round) -> Averages:
        """Both after one more round; a round without a draft changes nothing."""
        drafted = round.draft.depth
        if not drafted:
            return now
        acceptance = self.inertia * now.acceptance + (1 - self.inertia) * len(round.verdict.path) / drafted
        strict = acceptance < self.target_acceptance
        if self.hold and not strict and drafted == self.depth:
            return Averages(now.threshold, acceptance)
        wanted = now.threshold + (self.step if strict else -self.step)
        threshold = self.smooth * now.threshold + (1 - self.smooth) * wanted
        return Averages(min(max(threshold, 0.0), 1.0), acceptance)


def make(kit: Kit, depth: int | None = None, start: float = 0.4, rate: float = 0.2, target_acceptance: float = 0.9,
         inertia: float = 0.5, smooth: float = 0.9, step: float = 0.01, hold: bool = False) -> AdaEdl:
    """Depth defaults to the number of nodes that the measured cost curve allows."""
    return AdaEdl(kit.nodes if depth is None else depth, start, rate, target_acceptance, inertia, smooth, step, hold)


CARD = Card("adaedl", idea="stop where estimated acceptance falls below an adaptive threshold",
            source="AdaEDL, arXiv 2410.18351", make=make, notebook="13_when_adaedl")
