"""Cost-optimal: each round, the draft length with the most expected tokens per second.

Source: Leviathan et al. 2023, section 3, where the best length follows from the acceptance rate and the cost of a draft
step. Here the acceptance depends on the depth and is estimated from the session's rounds, and a verification costs what
the measured curve says. With a_d the acceptance probability at depth d, the rule maximises over n

    (1 + a_1 + a_1 a_2 + ... + a_1 a_2 ... a_n) / (seconds to draft n tokens and to verify them).

The prior of each depth is the estimate of the depth before. A depth that no draft has reached is therefore assumed to
be as good as the last one tried, and longer drafts are tried where shorter ones are accepted. Cost: no model pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from typing import NamedTuple

from specdec_lib.cards import Card, ForwardCost, Kit
from specdec_lib.cost.lengths import best_length
from specdec_lib.running_fold import RunningFold
from specdec_lib.trees import offered
from specdec_lib.types import Budget, RandomNumbers, Refusal, Round, Session

MOST = 10_000                                      # tokens: every round compares all lengths


@dataclass(frozen=True)
class StraightLine:
    """Cost model without a measured curve: one plain forward, plus `price` of it per further token."""

    price: float

    def __call__(self, width: float, context: float | None = None) -> float:
        return 1 + self.price * (width - 1)


class Counts(NamedTuple):
    """Drafts by the depth to which they were kept and tried, [deepest + 1] each; depth 0 and beyond included."""

    kept: tuple[float, ...]
    tried: tuple[float, ...]

    @classmethod
    def none(cls, deepest: int) -> Counts:
        """No draft yet."""
        return cls(*[(0.0,) * (deepest + 1)] * 2)

    def after(self, round: Round, fade: float) -> Counts:
        """With one more round: what was counted before weighs `fade` times as much. One without a draft is none."""
        if not len(round.draft):
            return self
        return Counts(*(tuple(count * fade + (depth == min(len(some) - 1, reached)) for depth, count in enumerate(some))
                        for some, reached in zip(self, (len(round.verdict.path), offered(round)), strict=True)))


def acceptance(rounds: Sequence[Round], deepest: int, prior: float, weight: float, fade: float = 1.0
               ) -> tuple[float, ...]:
    """The `estimates` after these rounds; a draft counts `fade` times as much as the one drafted after it."""
    counts = reduce(lambda counts, round: counts.after(round, fade), rounds, Counts.none(deepest))
    return estimates(counts, prior, weight)


def estimates(counts: Counts, prior: float, weight: float) -> tuple[float, ...]:
    """Acceptance probabilities at depth 1 ... deepest, each given that the token before it was accepted.

    At each depth `weight` pseudo-drafts join the observed ones: at depth 1 with probability `prior`, deeper with the
    estimate of the depth before.
    """
    kept, tried = (list(accumulate(reversed(some)))[-2::-1] for some in counts)            # so deep or deeper
    out: list[float] = []
    for hits, trials in zip(kept, tried, strict=True):
        out.append((weight * (out[-1] if out else prior) + hits) / (weight + trials))
    return tuple(out)


@dataclass(frozen=True)
class CostOptimal:
    """The best length from `shortest` to `longest`; with `shortest=0` it may stop drafting, and then stops learning."""

    seconds: ForwardCost
    longest: int
    shortest: int = 1
    per_token: float = 0.1                         # cost of the drafter in plain forwards: per token ...
    per_block: float = 0.0                         # ... and once per draft of any length
    prior: float = 0.5                             # acceptance probability before any observation
    weight: float = 4.0                            # of the prior, in drafts
    fade: float = 1.0                              # 1 = early rounds count as much as late ones
    fold: RunningFold = field(default_factory=RunningFold, init=False, repr=False, compare=False)

    def __post_init__(self):
        if not 0 <= self.shortest <= self.longest <= MOST:
            raise Refusal(f"lengths must satisfy 0 <= shortest <= longest <= {MOST:,}, got {self.shortest} and"
                          f" {self.longest}")
        if self.per_token < 0 or self.per_block < 0:
            raise Refusal("per_token and per_block must be 0 or more plain forwards, "
                          f"got {self.per_token} and {self.per_block}")
        if not (0 <= self.prior <= 1 and self.weight > 0 and 0 < self.fade <= 1):
            raise Refusal("prior must be a probability, weight above 0, and fade above 0 and at most 1, "
                          f"got {self.prior}, {self.weight} and {self.fade}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        counts = self.fold(self.next, session.rounds, Counts.none(self.longest))
        probs = estimates(counts, self.prior, self.weight)
        return Budget(best_length(probs, lambda n: self.round(n, len(session.tokens)), self.shortest))

    def next(self, counts: Counts, round: Round) -> Counts:
        """The counts after one more round."""
        return counts.after(round, self.fade)

    def round(self, n: int, context: int) -> float:
        """Cost of a round that drafts `n` tokens after `context` tokens, in the unit of the curve."""
        drafting = (self.per_block + self.per_token * n) * self.seconds(1, context) if n else 0.0
        return drafting + self.seconds(n + 1, context)


def make(kit: Kit, shortest: int = 1, longest: int | None = None, per_token: float = 0.1, per_block: float = 0.0,
         prior: float = 0.5, weight: float = 4.0, fade: float = 1.0) -> CostOptimal:
    """Costs come from the kit's curve, or without one are `kit.price` per further token.

    `longest` defaults to twice the nodes that the curve allows. A step of a small drafter costs about a tenth of a
    plain forward; a drafter that fills a block in one forward has `per_token=0, per_block=0.25`. The prior is the share
    of first tokens that the shipped drafters get accepted, about half; observations soon outweigh four drafts.
    """
    seconds = StraightLine(kit.price) if kit.cost is None else kit.cost
    return CostOptimal(seconds, 2 * kit.nodes if longest is None else longest, shortest, per_token, per_block, prior,
                       weight, fade)


CARD = Card("cost-optimal", idea="the length with the most expected tokens per second",
            source="Leviathan et al. 2023, section 3", make=make, notebook="19_when_cost_optimal")
