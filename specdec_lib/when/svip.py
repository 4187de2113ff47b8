"""SVIP: stop drafting once the drafter's entropy says that acceptance is no longer likely.

Source: SVIP (arXiv 2411.18462), equations 1 to 9. Acceptance is 1 - TV(p, q), by Pinsker at least
1 - sqrt(KL(q, p) / 2). The target is not known while drafting, so the cross entropy in KL is taken as a constant times
the draft's own entropy H (nats), which leaves the estimate 1 - sqrt(ratio * H): no bound where q is sure and wrong.

The released code and version 2 of the paper disagree: the code stops where sqrt(0.15 * H) > 0.3, that is above 0.6
nats; the paper writes sqrt(H) > 0.3, above 0.09 nats (`ratio=1` here). The code's is the default. Its cap of 40 tokens
is a GPU's; here the cost curve decides. It looks at the law a token was drawn from, not at the token, which stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from specdec_lib.types import Budget, Card, Kit, Refusal, Session, Trail


def estimate(entropy: float, ratio: float = 0.15) -> float:
    """The estimated chance of acceptance at this draft entropy H (nats), 1 - sqrt(ratio * H); it may be negative."""
    return 1 - sqrt(ratio * entropy)


@dataclass(frozen=True)
class Spread:
    """Stop where sqrt(ratio * entropy) of the last token's law is above `h`."""

    h: float
    ratio: float

    def __call__(self, trail: Trail) -> bool:
        return bool(trail) and sqrt(self.ratio * trail[-1].entropy) > self.h


@dataclass(frozen=True)
class Svip:
    """Up to `depth` tokens, fewer where the draft's law is spread out."""

    depth: int
    h: float = 0.3
    ratio: float = 0.15                            # c: half of what the cross entropy exceeds H by, in units of H

    def __post_init__(self):
        if self.depth < 0 or not self.h >= 0 or not self.ratio >= 0:
            raise Refusal(f"depth, h and ratio are zero or more, got {self.depth}, {self.h} and {self.ratio}")

    def __call__(self, session: Session, dice) -> Budget:
        return Budget(self.depth, stop=Spread(self.h, self.ratio))


def make(kit: Kit, depth: int | None = None, h: float = 0.3, ratio: float = 0.15) -> Svip:
    """Depth defaults to the nodes that the measured cost curve allows."""
    return Svip(kit.nodes if depth is None else depth, h, ratio)


CARD = Card("svip", idea="stop where the draft's entropy is high", source="SVIP, arXiv 2411.18462", make=make,
            notebook="12_when_svip")
