"""Margin: stop drafting where the drafter's two best tokens are close.

Source: the arm LogitMargin of TapOut (arXiv 2511.02017), known to us at second hand. Whether it subtracts chances or
logits was not found; here chances are the default, and `logits` takes the difference of logits, which is ln(first /
second). The published threshold was not found either; 0.2 between chances is what we recall. The rule looks at the law
a token was drawn from, not at the token, which stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isnan

from specdec_lib.types import Budget, Card, Kit, Refusal, Session, Trail


@dataclass(frozen=True)
class CloseTop:
    """Stop where the margin between the two best tokens of the last row is below `h`."""

    h: float
    logits: bool = False

    def __call__(self, trail: Trail) -> bool:
        if not trail:
            return False
        seen = trail[-1]
        # ln(first / second) < h without a logarithm, since a chance may have rounded to zero
        return seen.first < seen.second * exp(self.h) if self.logits else seen.first - seen.second < self.h


@dataclass(frozen=True)
class Margin:
    """Up to `depth` tokens, fewer where the drafter's first choice hardly leads."""

    depth: int
    h: float = 0.2
    logits: bool = False                           # h is a difference of logits, else of chances

    def __post_init__(self):
        if self.depth < 0 or isnan(self.h) or not self.h <= (700 if self.logits else 1):
            raise Refusal(f"a margin of {'logits' if self.logits else 'chances'} has depth >= 0 and a threshold of at "
                          f"most {700 if self.logits else 1}, got {self.depth} and {self.h}")

    def __call__(self, session: Session, dice) -> Budget:
        return Budget(self.depth, stop=CloseTop(self.h, self.logits))


def make(kit: Kit, depth: int | None = None, h: float = 0.2, logits: bool = False) -> Margin:
    """Depth defaults to the nodes that the measured cost curve allows."""
    return Margin(kit.nodes if depth is None else depth, h, logits)


CARD = Card("margin", idea="stop where the draft's two best tokens are close", source="TapOut, arXiv 2511.02017",
            make=make, notebook="18_when_margin")
