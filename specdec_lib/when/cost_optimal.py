"""Cost-optimal: the length that measured costs and the acceptance seen so far call best, chosen anew every round.

Source: Leviathan et al. 2023, section 3, where the best length follows from the acceptance and the cost of a draft
step; here acceptance depends on the depth, is estimated from the history, and a verification costs what the measured
curve says. With a_d the chance at depth d, the length n is the one with the most expected tokens per second,
(1 + a_1 + a_1 a_2 + ... + a_1 a_2 ... a_n) / (seconds to draft n tokens and to verify them). An estimate leans on that
of the depth before, so a depth that no draft has reached is taken to be as good as the last one tried: longer drafts
are tested where shorter ones are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from specdec_lib.cost.lengths import best_length
from specdec_lib.trees import offered
from specdec_lib.types import Budget, Card, Kit, Refusal, Round, Session

Seconds = Callable[[float, float], float]          # of a forward, by its width and its context: a cost.CostCurve


@dataclass(frozen=True)
class StraightLine:
    """A cost where none was measured: one plain forward, and `price` of it for each token more."""

    price: float

    def __call__(self, width: float, context: float | None = None) -> float:
        return 1 + self.price * (width - 1)


def acceptance(rounds: Sequence[Round], deepest: int, prior: float, weight: float, fade: float = 1.0
               ) -> tuple[float, ...]:
    """Chances of acceptance at depth 1 ... deepest, each once the token before it was accepted.

    At each depth `weight` imagined drafts join those that were seen there: at depth 1 with chance `prior`, deeper with
    the estimate of the depth before. A draft counts `fade` times as much as the one drafted after it.
    """
    kept, tried, share = [0.0] * (deepest + 1), [0.0] * (deepest + 1), 1.0
    for round in reversed(rounds):
        if len(round.draft):
            kept[min(deepest, len(round.verdict.path))] += share
            tried[min(deepest, offered(round))] += share
            share *= fade
    kept, tried = (list(accumulate(reversed(some)))[-2::-1] for some in (kept, tried))     # so deep or deeper
    out: list[float] = []
    for hits, trials in zip(kept, tried, strict=True):
        out.append((weight * (out[-1] if out else prior) + hits) / (weight + trials))
    return tuple(out)


@dataclass(frozen=True)
class CostOptimal:
    """The best length between `shortest` and `longest`; at a shortest of 0 it may stop drafting, and learning."""

    seconds: Seconds
    longest: int
    shortest: int = 1
    per_token: float = 0.1                         # what the drafter costs, in plain forwards: for each token ...
    per_block: float = 0.0                         # ... and once for a draft of any length
    prior: float = 0.5                             # chance that a token is accepted, before anything was seen
    weight: float = 4.0                            # drafts that the prior is worth
    fade: float = 1.0                              # 1 = early rounds count as much as late ones

    def __post_init__(self):
        if not 0 <= self.shortest <= self.longest:
            raise Refusal(f"lengths need 0 <= shortest <= longest, got {self.shortest} and {self.longest}")
        if self.per_token < 0 or self.per_block < 0:
            raise Refusal(f"a drafter costs 0 or more plain forwards, got {self.per_token} and {self.per_block}")
        if not (0 <= self.prior <= 1 and self.weight > 0 and 0 < self.fade <= 1):
            raise Refusal("prior is a chance, weight a number of drafts above 0 and fade above 0 and at most 1, "
                          f"got {self.prior}, {self.weight} and {self.fade}")

    def __call__(self, session: Session, dice) -> Budget:
        probs = acceptance(session.rounds, self.longest, self.prior, self.weight, self.fade)
        return Budget(best_length(probs, lambda n: self.round(n, len(session.tokens)), self.shortest))

    def round(self, n: int, context: int) -> float:
        """What a round that drafts `n` tokens costs after `context` tokens, in the unit of the curve."""
        drafting = (self.per_block + self.per_token * n) * self.seconds(1, context) if n else 0.0
        return drafting + self.seconds(n + 1, context)


def make(kit: Kit, shortest: int = 1, longest: int | None = None, per_token: float = 0.1, per_block: float = 0.0,
         prior: float = 0.5, weight: float = 4.0, fade: float = 1.0) -> CostOptimal:
    """Forwards cost what the kit's curve says, or `kit.price` a token where nobody has measured.

    `longest` defaults to twice the nodes that the curve calls cheap. A step of a small drafter costs about a tenth of a
    plain forward; a drafter that fills a block in one forward has `per_token=0, per_block=0.25`. Half of all first
    tokens are what the shipped drafters get accepted; four drafts are soon outweighed.
    """
    seconds = StraightLine(kit.price) if kit.cost is None else kit.cost
    return CostOptimal(seconds, 2 * kit.nodes if longest is None else longest, shortest, per_token, per_block, prior,
                       weight, fade)


CARD = Card("cost-optimal", idea="the length that measured costs and acceptance so far call best",
            source="Leviathan et al. 2023, section 3", make=make, notebook="19_when_cost_optimal")
