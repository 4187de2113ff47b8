"""Parallel filling: every forward writes the k best-ranked tokens, as if they were independent of each other.

Source: LLaDA (arXiv 2502.09992) with fewer steps than masks. `k` fixes the tokens per forward, `forwards` the number of
forwards, divided among blocks and masks as LLaDA does. Not stepwise decoding's output: tokens of one forward are
chosen without seeing each other. Cost: masks / k forwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specdec_lib.canvas.filling import check_block, check_temperature, fill, with_block, within_forwards
from specdec_lib.canvas.order import check_order
from specdec_lib.canvas.types import CanvasModel, CanvasSession, Choice
from specdec_lib.cards import Card
from specdec_lib.types import RandomNumbers, Refusal


@dataclass(frozen=True)
class Parallel:
    """`k` tokens per forward, or as many as `forwards` forwards need."""

    k: int = 4
    forwards: int | None = None
    order: str = "confidence"
    block: int = 0
    temperature: float = 0.0

    def __call__(self, session: CanvasSession, model: CanvasModel, dice: RandomNumbers) -> Iterator[CanvasSession]:
        since = len(session.rounds)

        def take(choices: tuple[Choice, ...], now: CanvasSession) -> int:
            return self.k if self.forwards is None else within_forwards(self.forwards, now, since)

        return fill(with_block(session, self.block), model, take, dice, self.order, self.temperature)


def make(model: CanvasModel, k: int = 4, forwards: int | None = None, order: str = "confidence", block: int = 0,
         temperature: float = 0.0) -> Parallel:
    """`forwards` replaces `k`."""
    if k < 1 or (forwards is not None and forwards < 1):
        raise Refusal(f"k and forwards must be at least 1, got {k} and {forwards}")
    return Parallel(k, forwards, check_order(order), check_block(block), check_temperature(temperature))


CARD = Card("parallel", idea="write the k most confident positions of every forward", source="LLaDA, arXiv 2502.09992",
            make=make, lossless=False, notebook="61_parallel_filling")
