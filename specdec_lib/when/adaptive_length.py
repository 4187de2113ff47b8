"""Adaptive length: set the next draft length from averages of the generated and the accepted lengths.

Source: DiffuSpec (arXiv 2510.02358 v1), Eqs. 9 to 11. Two exponential averages are computed from the rounds: of the
generated length (tokens of the raw draft before its first end token) and of the accepted length. Cost: no model pass.

`printed` is the paper's controller. Both averages start at zero, the first draft has the longest length, and
k = clip(ceil(generated + growth x [accepted >= generated])). The accepted length seldom exceeds the generated one, and
both averages decay at the same rate, so at a rate below 1 the bracket is never 1 again after the first rejected token
and k can only fall. With the paper's limits 20 and 30 and a rate of 0.5, a rejection in round one leaves at most
ceil(30 / 2) = 15 tokens, so every later draft has the shortest length, 20.

`corrected` is ours. The averages start at the first observed values. If the accepted average reaches `share` of the
generated one, the length grows; otherwise the next draft is `margin` tokens longer than the accepted average. This
length can rise and fall with the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from specdec_lib.cards import Card, Kit
from specdec_lib.running_fold import RunningFold
from specdec_lib.types import Budget, RandomNumbers, Refusal, Round, Session

RULES = ("corrected", "printed")
NOTE = "generated"                                 # note of a drafter that searches its draft: length of the raw one
Seen = tuple[int, int]                             # tokens generated and accepted in one round


def round_lengths(round: Round, end: frozenset[int] = frozenset()) -> Seen | None:
    """Generated and accepted length of a round; None for a round without a draft.

    The generated length is the draft's note `generated`, or without one the depth drafted before an end token.
    """
    draft = round.draft
    if NOTE not in draft.notes and not len(draft):
        return None
    own = max((depth for token, depth in zip(draft.tokens, draft.depths, strict=True) if token not in end), default=0)
    return draft.notes.get(NOTE, own), len(round.verdict.path)


class AverageLengths(NamedTuple):
    """Exponential averages of the tokens generated and accepted in a round, and of their difference."""

    generated: float
    accepted: float
    behind: float                                  # the other two may round to equal

    def after(self, seen: Seen, rate: float) -> AverageLengths:
        """Eqs. 9 and 10: each average moves to the new value by `rate` times their difference."""
        values = (*seen, seen[0] - seen[1])
        return AverageLengths(*(average + rate * (value - average)
                                for average, value in zip(self, values, strict=True)))


def printed_length(averages: AverageLengths, growth: int) -> int:
    """The length by Eq. 11, before clipping."""
    return ceil(averages.generated + growth * (averages.behind <= 0))


def corrected_length(averages: AverageLengths, growth: int, share: float, margin: int) -> int:
    """The length by the corrected rule, before clipping."""
    generated, accepted, _ = averages
    return ceil(generated) + growth if accepted >= share * generated else ceil(accepted) + margin


State = tuple[frozenset[int], AverageLengths | None]     # end tokens; averages, None before the first draft


@dataclass(frozen=True)
class AdaptiveLength:
    """Between `shortest` and `longest` tokens, the longest first; rounds without a draft change nothing."""

    shortest: int = 2                              # k_min; the paper has 20
    longest: int = 8                               # k_max; the paper has 30
    growth: int = 2                                # delta; the paper has 10
    rate: float = 0.5                              # rho, the weight of the newest round, as in the paper
    rule: str = "corrected"
    share: float = 0.6                             # grow if this share of the generated tokens is accepted
    margin: int = 2                                # beyond the accepted length, so that easier text is detected
    width: int = 1                                 # of a tree; 1 = a chain
    nodes: int | None = None                       # of a tree; None = as many as length and width allow
    fold: RunningFold = field(default_factory=RunningFold, init=False, repr=False, compare=False)

    def __post_init__(self):
        if not 1 <= self.shortest <= self.longest:
            raise Refusal(f"lengths must satisfy 1 <= shortest <= longest, got {self.shortest} and {self.longest}")
        if self.growth < 0 or self.margin < 0:
            raise Refusal(f"growth and margin must be 0 or more tokens, got {self.growth} and {self.margin}")
        if not (0 < self.rate <= 1 and 0 < self.share <= 1):
            raise Refusal(f"rate and share must be above 0 and at most 1, got {self.rate} and {self.share}")
        if self.rule not in RULES:
            raise Refusal(f"rule must be one of {', '.join(RULES)}, got {self.rule!r}")
        Budget(self.longest, self.width, self.nodes)         # refuses impossible sizes before the first round

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        _, averages = self.fold(self.after, session.rounds, (session.end, None))
        return Budget(self.length(averages), self.width, self.nodes)

    def after(self, state: State, round: Round) -> State:
        """The end tokens and the averages after one more round."""
        end, averages = state
        seen = round_lengths(round, end)
        return state if seen is None else (end, self.next(averages, seen))

    def next(self, averages: AverageLengths | None, seen: Seen) -> AverageLengths:
        """The averages after one more round with a draft: from zero as printed, from the first values as corrected."""
        if averages is None and self.rule == "corrected":
            return AverageLengths(*seen, seen[0] - seen[1])
        return (averages or AverageLengths(0.0, 0.0, 0.0)).after(seen, self.rate)

    def length(self, averages: AverageLengths | None) -> int:
        """The next draft length; None stands for no draft so far."""
        if averages is None:
            return self.longest
        if self.rule == "printed":
            wanted = printed_length(averages, self.growth)
        else:
            wanted = corrected_length(averages, self.growth, self.share, self.margin)
        return min(self.longest, max(self.shortest, wanted))


def make(kit: Kit, shortest: int = 2, longest: int = 8, growth: int = 2, rate: float = 0.5, rule: str = "corrected",
         share: float = 0.6, margin: int = 2, width: int = 1, nodes: int | None = None) -> AdaptiveLength:
    """Default limits suit a small target on a CPU, where verifying 8 tokens costs little more than one and 20 do not.

    8 is also the block length of the shipped diffusion drafter. Growth and margin are a quarter of it, near the paper's
    third of 30. With a share of 1 the length would again grow only after a fully accepted draft. The paper's setting:
    `adaptive-length(rule='printed', shortest=20, longest=30, growth=10)`.
    """
    return AdaptiveLength(shortest, longest, growth, rate, rule, share, margin, width, nodes)


CARD = Card("adaptive-length", idea="draft length from averages of generated and accepted lengths",
            source="DiffuSpec, arXiv 2510.02358", make=make, notebook="16_when_adaptive_length")
