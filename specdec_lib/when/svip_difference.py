"""SVIP-difference: stop drafting where the drafter's entropy rises sharply from one token to the next.

Source: one of the five arms of TapOut (arXiv 2511.02017), known to us at second hand. Formula: stop where
sqrt(H_t) - sqrt(H_{t-1}) > h, entropies in nats, of the raw softmax at temperature 1. We did not find the published h;
0.2 is from memory. The first token of a draft has no predecessor and never stops it; that is our choice. Cost: no model
pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Budget, RandomNumbers, Refusal, Session, Trail


@dataclass(frozen=True)
class EntropyRise:
    """Stop where the square root of the entropy rose by more than `h` at the last token."""

    h: float

    def __call__(self, trail: Trail) -> bool:
        return len(trail) > 1 and sqrt(trail[-1].entropy) - sqrt(trail[-2].entropy) > self.h


@dataclass(frozen=True)
class SvipDifference:
    """Up to `depth` tokens, fewer after a sharp rise of entropy; a constant high entropy does not stop it."""

    depth: int
    h: float = 0.2

    def __post_init__(self):
        if self.depth < 0 or self.h != self.h:
            raise Refusal(f"depth must be zero or more and h a number, got {self.depth} and {self.h}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        return Budget(self.depth, stop=EntropyRise(self.h))


def make(kit: Kit, depth: int | None = None, h: float = 0.2) -> SvipDifference:
    """Depth defaults to the number of nodes that the measured cost curve allows."""
    return SvipDifference(kit.nodes if depth is None else depth, h)


CARD = Card("svip-difference", idea="stop where the draft's entropy rises sharply", source="TapOut, arXiv 2511.02017",
            make=make, notebook="18_when_margin")
