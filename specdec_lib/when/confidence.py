"""Confidence: stop drafting once the drafter was unsure of the token it just drew.

Source: transformers' `assistant_confidence_threshold` (default 0.4) [read in its code]. The chance is of the raw
softmax at temperature 1. The unsure token itself stays in the draft, so the rule is lossless when sampling as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.types import Budget, Card, Kit, Refusal, Session, Trail


@dataclass(frozen=True)
class Unsure:
    """Stop where the last token's chance fell below the threshold."""

    threshold: float

    def __call__(self, trail: Trail) -> bool:
        return bool(trail) and trail[-1].chance < self.threshold


@dataclass(frozen=True)
class Confidence:
    """Up to `depth` tokens, fewer where the drafter is unsure."""

    depth: int
    threshold: float = 0.4

    def __post_init__(self):
        if not 0 <= self.threshold <= 1:
            raise Refusal(f"threshold is a chance between 0 and 1, got {self.threshold}")

    def __call__(self, session: Session, dice) -> Budget:
        return Budget(self.depth, stop=Unsure(self.threshold))


def make(kit: Kit, depth: int | None = None, threshold: float = 0.4) -> Confidence:
    """Depth defaults to the nodes that the measured cost curve allows."""
    return Confidence(kit.nodes if depth is None else depth, threshold)


CARD = Card("confidence", idea="stop where the drafter is unsure", source="transformers, confidence threshold",
            make=make, notebook="17_when_confidence")
