"""Stepwise decoding: one forward, one token, the position with the highest score first. The reference of all others.

Source: low-confidence remasking with as many steps as masks (LLaDA, Nie et al. 2025); `order` is also Dream's margin or
entropy, or random. `block` divides the area into semi-autoregressive blocks. Cost: one forward per token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specdec_lib.canvas.filling import check_block, check_temperature, fill, with_block
from specdec_lib.canvas.order import check_order
from specdec_lib.canvas.types import CanvasModel, CanvasSession
from specdec_lib.cards import Card
from specdec_lib.types import RandomNumbers


@dataclass(frozen=True)
class Stepwise:
    """One token per forward; at a temperature above 0 the tokens are drawn."""

    order: str = "confidence"
    block: int = 0
    temperature: float = 0.0

    def __call__(self, session: CanvasSession, model: CanvasModel, dice: RandomNumbers) -> Iterator[CanvasSession]:
        return fill(with_block(session, self.block), model, lambda choices, now: 1, dice, self.order, self.temperature)


def make(model: CanvasModel, order: str = "confidence", block: int = 0, temperature: float = 0.0) -> Stepwise:
    """`block` 0 leaves the canvas's own blocks."""
    return Stepwise(check_order(order), check_block(block), check_temperature(temperature))


CARD = Card("stepwise", idea="one token per forward, the most confident position first",
            source="LLaDA, arXiv 2502.09992; Dream, arXiv 2508.15487", make=make, notebook="60_canvas")
