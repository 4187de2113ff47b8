"""Two stages within one budget of forwards: fill the canvas in a share of them, refine it with the others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from specdec_lib.canvas.filling import check_temperature, fill, within_forwards
from specdec_lib.canvas.refining import Refinement, refine
from specdec_lib.canvas.types import CanvasModel, CanvasSession, Choice
from specdec_lib.types import RandomNumbers, Refusal


@dataclass(frozen=True)
class FillThenRefine:
    """`forwards` in all; the first stage takes the share `fill` of them, at least one, and never more than masks.

    Every block takes a forward, so where the share is smaller than the number of blocks, more may be taken in all.

    `damping`: its logarithm is subtracted from the logits of end tokens while filling, so that a text is not closed
    early (Tolerator's paper; dividing a negative logit by it would do the opposite).
    """

    forwards: int
    fill: float
    temperature: float                             # of the first stage
    damping: float
    refinement: Refinement

    def __post_init__(self):
        if self.forwards < 1 or not 0 < self.fill <= 1 or self.damping < 1:
            raise Refusal("forwards and damping are at least 1 and fill is a share above 0, got "
                          f"{self.forwards}, {self.damping} and {self.fill}")
        check_temperature(self.temperature)
        check_temperature(self.refinement.temperature)

    def __call__(self, session: CanvasSession, model: CanvasModel, dice: RandomNumbers) -> Iterator[CanvasSession]:
        first, since = max(1, round(self.fill * self.forwards)), len(session.rounds)

        def take(choices: tuple[Choice, ...], now: CanvasSession) -> int:
            return within_forwards(first, now, since)

        amount = math.log(self.damping)
        for now in fill(session, model, take, dice, temperature=self.temperature,
                        change=lambda row: row.damped(model.end, amount)):
            session = now
            yield session
        left = self.forwards - sum(round.forwards for round in session.rounds[since:])
        yield from refine(session, model, self.refinement, left, dice)
