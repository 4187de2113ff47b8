"""Margin: stop drafting where the probabilities of the drafter's two best tokens are close.

Source: the arm LogitMargin of TapOut (arXiv 2511.02017), known to us at second hand. Formula: stop where
first - second < h. We did not find whether the paper subtracts probabilities or logits; probabilities are the default,
and `logits` takes the difference of logits, ln(first / second). We did not find the published threshold either; 0.2
between probabilities is from memory. The rule reads the raw softmax at temperature 1, whatever tokens are drawn at, and
the drawn token stays in the draft. Cost: no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isnan

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Budget, RandomNumbers, Refusal, Session, Trail


@dataclass(frozen=True)
class CloseTop:
    """Stop where the margin between the two best tokens of the last row is below `h`."""

    h: float
    logits: bool = False

    def __call__(self, trail: Trail) -> bool:
        if not trail:
            return False
        stat = trail[-1]
        # ln(first / second) < h without a logarithm, because a probability may have rounded to zero
        return stat.first < stat.second * exp(self.h) if self.logits else stat.first - stat.second < self.h


@dataclass(frozen=True)
class Margin:
    """Up to `depth` tokens, fewer where the drafter's two best tokens are close."""

    depth: int
    h: float = 0.2
    logits: bool = False                           # h is a difference of logits, else of probabilities

    def __post_init__(self):
        if self.depth < 0 or isnan(self.h) or not self.h <= (700 if self.logits else 1):
            raise Refusal(f"a margin of {'logits' if self.logits else 'probabilities'} needs depth >= 0 and h of at "
                          f"most {700 if self.logits else 1}, got {self.depth} and {self.h}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        return Budget(self.depth, stop=CloseTop(self.h, self.logits))


def make(kit: Kit, depth: int | None = None, h: float = 0.2, logits: bool = False) -> Margin:
    """Depth defaults to the number of nodes that the measured cost curve allows."""
    return Margin(kit.nodes if depth is None else depth, h, logits)


CARD = Card("margin", idea="stop where the draft's two best tokens are close", source="TapOut, arXiv 2511.02017",
            make=make, notebook="18_when_margin")
