"""SVIP-difference: stop drafting where the drafter's entropy jumps from one token to the next.

Source: one of the five arms of TapOut (arXiv 2511.02017), known to us at second hand: the rule is
sqrt(H_t) - sqrt(H_{t-1}) > h, entropies in nats. The published h was not found; 0.2 is what we recall. The first token
of a draft has nothing before it and never stops it: that is our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from specdec_lib.types import Budget, Card, Kit, Refusal, Session, Trail


@dataclass(frozen=True)
class Jump:
    """Stop where the root of the entropy rose by more than `h` with the last token."""

    h: float

    def __call__(self, trail: Trail) -> bool:
        return len(trail) > 1 and sqrt(trail[-1].entropy) - sqrt(trail[-2].entropy) > self.h


@dataclass(frozen=True)
class SvipDifference:
    """Up to `depth` tokens, fewer where doubt sets in at once; constant doubt stops nothing."""

    depth: int
    h: float = 0.2

    def __post_init__(self):
        if self.depth < 0 or self.h != self.h:
            raise Refusal(f"depth is zero or more and h a number, got {self.depth} and {self.h}")

    def __call__(self, session: Session, dice) -> Budget:
        return Budget(self.depth, stop=Jump(self.h))


def make(kit: Kit, depth: int | None = None, h: float = 0.2) -> SvipDifference:
    """Depth defaults to the nodes that the measured cost curve allows."""
    return SvipDifference(kit.nodes if depth is None else depth, h)


CARD = Card("svip-difference", idea="stop where the draft's entropy jumps", source="TapOut, arXiv 2511.02017",
            make=make, notebook="18_when_margin")
