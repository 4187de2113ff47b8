"""Adaptive length: a draft as long as the drafter had something to say, shortened once the target stops agreeing.

Source: DiffuSpec (arXiv 2510.02358 v1), Eqs. 9 to 11. Two averages are folded from the history: of the generated
length, the tokens of the raw draft before its first end token, and of the accepted length. `printed` is the paper's
controller: both averages start at zero, the first draft has the longest length, and k = clip(ceil(generated + growth x
[accepted >= generated])). What is accepted is seldom more than what was generated, and both averages forget at one
rate, so after the first token refused the bracket is never 1 again and k can only fall. With the paper's 20, 30 and a
rate of 0.5, a refusal in round one leaves ceil(30 / 2) = 15 tokens at most, so every later draft has the shortest
length, 20. `corrected` is ours: averages start at what was first seen, a share of a draft is success enough to grow,
and else the next draft is a margin longer than what was accepted, a length that follows the text in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from specdec_lib.types import Budget, Card, Kit, Refusal, Round, Session

RULES = ("corrected", "printed")
NOTE = "generated"                                 # what a drafter that searches its draft says of the raw one
Seen = tuple[int, int]                             # tokens generated and accepted in one round


def seen(round: Round, end: frozenset[int] = frozenset()) -> Seen | None:
    """Lengths generated and accepted in a round; None where nothing was drafted.

    The note `generated` counts; a drafter that leaves none is taken at the depth it drafted before an end token.
    """
    draft = round.draft
    if NOTE not in draft.notes and not len(draft):
        return None
    own = max((depth for token, depth in zip(draft.tokens, draft.depths, strict=True) if token not in end), default=0)
    return draft.notes.get(NOTE, own), len(round.verdict.path)


def average(values: Sequence[int], rate: float, start: float) -> float:
    """The exponential average: each value pulls it a share `rate` of the way, from `start`."""
    for value in values:
        start += rate * (value - start)
    return start


def printed(history: Sequence[Seen], growth: int, rate: float) -> int:
    """The length after these rounds by Eqs. 9 to 11, not yet held within limits."""
    generated, accepted = (average(column, rate, 0.0) for column in zip(*history, strict=True))
    return ceil(generated + growth * (accepted >= generated))


def corrected(history: Sequence[Seen], growth: int, rate: float, share: float, margin: int) -> int:
    """The length after these rounds by the corrected rule, not yet held within limits."""
    generated, accepted = (average(column[1:], rate, column[0]) for column in zip(*history, strict=True))
    return ceil(generated) + growth if accepted >= share * generated else ceil(accepted) + margin


@dataclass(frozen=True)
class AdaptiveLength:
    """Between `shortest` and `longest` tokens, the longest first; rounds that drafted nothing change nothing."""

    shortest: int = 2                              # k_min; the paper has 20
    longest: int = 8                               # k_max; the paper has 30
    growth: int = 2                                # delta; the paper has 10
    rate: float = 0.5                              # rho, the weight of the newest round, as in the paper
    rule: str = "corrected"
    share: float = 0.6                             # of the generated tokens, accepted: success enough to grow
    margin: int = 2                                # beyond what was accepted, so that easier text can be noticed
    width: int = 1                                 # of a tree; 1 = a chain
    nodes: int | None = None                       # of a tree; None = as many as length and width allow

    def __post_init__(self):
        if not 1 <= self.shortest <= self.longest:
            raise Refusal(f"lengths need 1 <= shortest <= longest, got {self.shortest} and {self.longest}")
        if self.growth < 0 or self.margin < 0:
            raise Refusal(f"growth and margin are tokens, 0 or more, got {self.growth} and {self.margin}")
        if not (0 < self.rate <= 1 and 0 < self.share <= 1):
            raise Refusal(f"rate and share are above 0 and at most 1, got {self.rate} and {self.share}")
        if self.rule not in RULES:
            raise Refusal(f"rule is one of {', '.join(RULES)}, got {self.rule!r}")
        if self.width < 1 or (self.nodes is not None and self.nodes < 0):
            raise Refusal(f"a tree needs width >= 1 and nodes >= 0, got {self.width} and {self.nodes}")

    def __call__(self, session: Session, dice) -> Budget:
        history = [pair for round in session.rounds if (pair := seen(round, session.end)) is not None]
        return Budget(self.length(history), self.width, self.nodes)

    def length(self, history: Sequence[Seen]) -> int:
        """Tokens that the draft may have which follows these rounds."""
        if not history:
            return self.longest
        if self.rule == "printed":
            wanted = printed(history, self.growth, self.rate)
        else:
            wanted = corrected(history, self.growth, self.rate, self.share, self.margin)
        return min(self.longest, max(self.shortest, wanted))


def make(kit: Kit, shortest: int = 2, longest: int = 8, growth: int = 2, rate: float = 0.5, rule: str = "corrected",
         share: float = 0.6, margin: int = 2, width: int = 1, nodes: int | None = None) -> AdaptiveLength:
    """Limits for a small target on a CPU, where 8 tokens are verified for little more than one and 20 are not.

    8 is also the block that the shipped diffusion drafter was trained to fill. Growth and margin are a quarter of it,
    near the paper's third of 30; at a share of 1 success would again be a draft accepted whole. The paper's own:
    `adaptive-length(rule='printed', shortest=20, longest=30, growth=10)`.
    """
    return AdaptiveLength(shortest, longest, growth, rate, rule, share, margin, width, nodes)


CARD = Card("adaptive-length", idea="as long as the drafter speaks and the target agrees",
            source="DiffuSpec, arXiv 2510.02358", make=make, notebook="16_when_adaptive_length")
