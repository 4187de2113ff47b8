"""SVIP: stop drafting once the drafter's entropy is so high that acceptance is unlikely.

Source: SVIP (arXiv 2411.18462), equations 1 to 9. The acceptance probability is 1 - TV(p, q), by Pinsker at least
1 - sqrt(KL(q, p) / 2). The target is not known while drafting, so the cross entropy in KL is taken as a constant times
the draft's own entropy H (nats). That gives the estimate 1 - sqrt(ratio * H). It is no bound where q is confident and
wrong. Cost: no model pass.

The released code and version 2 of the paper disagree: the code stops where sqrt(0.15 * H) > 0.3, that is above 0.6
nats; the paper writes sqrt(H) > 0.3, above 0.09 nats (`ratio=1` here). The code's rule is the default. Its cap of 40
tokens is for a GPU; here the cost curve decides. The rule reads the raw softmax at temperature 1, whatever tokens are
drawn at, and the drawn token stays in the draft.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Budget, RandomNumbers, Refusal, Session, Trail


def estimated_acceptance(entropy: float, ratio: float = 0.15) -> float:
    """Estimated acceptance probability at draft entropy H (nats), 1 - sqrt(ratio * H); it may be negative."""
    return 1 - sqrt(ratio * entropy)


@dataclass(frozen=True)
class HighEntropy:
    """Stop where sqrt(ratio * entropy) of the last token's distribution is above `h`."""

    h: float
    ratio: float

    def __call__(self, trail: Trail) -> bool:
        return bool(trail) and sqrt(self.ratio * trail[-1].entropy) > self.h


@dataclass(frozen=True)
class Svip:
    """Up to `depth` tokens, fewer where the draft's entropy is high."""

    depth: int
    h: float = 0.3
    ratio: float = 0.15                            # c: half of (cross entropy - H) / H

    def __post_init__(self):
        if self.depth < 0 or not self.h >= 0 or not self.ratio >= 0:
            raise Refusal(f"depth, h and ratio must be zero or more, got {self.depth}, {self.h} and {self.ratio}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        return Budget(self.depth, stop=HighEntropy(self.h, self.ratio))


def make(kit: Kit, depth: int | None = None, h: float = 0.3, ratio: float = 0.15) -> Svip:
    """Depth defaults to the number of nodes that the measured cost curve allows."""
    return Svip(kit.nodes if depth is None else depth, h, ratio)


CARD = Card("svip", idea="stop where the draft's entropy is high", source="SVIP, arXiv 2411.18462", make=make,
            notebook="12_when_svip")
