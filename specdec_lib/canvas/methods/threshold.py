"""Confidence threshold: every forward writes all positions whose best token is at least this probable, at least one.

Source: Fast-dLLM (arXiv 2505.22618), parallel decoding with theta = 0.9: write every i of the block with c_i >= theta.
Cost: as many forwards as the model's confidence asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specdec_lib.canvas.filling import check_block, check_theta, fill, reaching, with_block
from specdec_lib.canvas.types import CanvasModel, CanvasSession
from specdec_lib.cards import Card
from specdec_lib.types import RandomNumbers


@dataclass(frozen=True)
class Threshold:
    """All positions with a confidence of at least `theta`, or the best one."""

    theta: float = 0.9
    block: int = 0

    def __call__(self, session: CanvasSession, model: CanvasModel, dice: RandomNumbers) -> Iterator[CanvasSession]:
        return fill(with_block(session, self.block), model, reaching(self.theta), dice)


def make(model: CanvasModel, theta: float = 0.9, block: int = 0) -> Threshold:
    return Threshold(check_theta(theta), check_block(block))


CARD = Card("threshold", idea="write every position whose best token is probable enough",
            source="Fast-dLLM, arXiv 2505.22618", make=make, lossless=False, notebook="61_parallel_filling")
