"""Factor rule: the more tokens a forward writes, the more confident the least confident of them has to be.

Source: Fast-dLLM (arXiv 2505.22618): write the n most confident positions for the largest n with (n + 1)(1 - c_n) < f,
at least one. Its theorem: if every one of n marginals has a mode with probability above 1 - e, and (n + 1) e <= 1, then
the product of the marginals and the joint have the same mode, so at f = 1 the tokens written together are the most
probable ones jointly, under the model's own joint distribution if its forecasts have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specdec_lib.canvas.filling import check_block, fill, with_block
from specdec_lib.canvas.types import CanvasModel, CanvasSession, Choice
from specdec_lib.cards import Card
from specdec_lib.types import RandomNumbers, Refusal


def joint_mode_count(choices: tuple[Choice, ...], factor: float) -> int:
    """The largest n with (n + 1)(1 - c_n) < factor, for choices with the highest confidence first; else 0."""
    return max((n for n, choice in enumerate(choices, 1) if (n + 1) * (1 - choice.confidence) < factor), default=0)


@dataclass(frozen=True)
class Factor:
    """The factor rule with `f`."""

    f: float = 1.0
    block: int = 0

    def __call__(self, session: CanvasSession, model: CanvasModel, dice: RandomNumbers) -> Iterator[CanvasSession]:
        return fill(with_block(session, self.block), model, lambda choices, now: joint_mode_count(choices, self.f),
                    dice)


def make(model: CanvasModel, f: float = 1.0, block: int = 0) -> Factor:
    if f <= 0:
        raise Refusal(f"f must be above 0, got {f}")
    return Factor(f, check_block(block))


CARD = Card("factor", idea="write n positions if the n-th is confident enough for n",
            source="Fast-dLLM, arXiv 2505.22618", make=make, lossless=False, notebook="61_parallel_filling")
