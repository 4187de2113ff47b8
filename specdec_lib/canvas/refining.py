"""Refining a full canvas: hide a share, decide it again. The second stage of Tolerator, and remasking as a contrast.

Source: Tolerator (arXiv 2510.05090), section on cross-validation: the share of hidden positions falls along a cosine
from `start` to `finish`; of the hidden ones those with the least probable old token are drawn again, the rest get it
back; a position whose token was drawn again `lock` times in a row is never hidden again. A draw that changes the token
is not counted here; the released code counts it as the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specdec_lib.canvas.filling import round_of
from specdec_lib.canvas.forecast import RowForecast
from specdec_lib.canvas.order import shuffled
from specdec_lib.canvas.types import CanvasModel, CanvasSession, Choice
from specdec_lib.types import RandomNumbers, Refusal

Hide = Callable[[CanvasSession, tuple[int, ...], int, RandomNumbers], tuple[int, ...]]


@dataclass(frozen=True)
class Refinement:
    """How a full canvas is refined; `hide(session, free positions, how many, dice)` gives the positions to hide."""

    hide: Hide
    start: float = 0.8                             # share of hidden positions at the first forward
    finish: float = 0.4                            # and at the last
    temperature: float = 0.0
    update: float = 1.0                            # of the hidden positions, the share that is drawn again
    lock: int = 10                                 # equal results in a row after which a position is left alone

    def __post_init__(self):
        for name in ("start", "finish", "update"):
            if not 0 < getattr(self, name) <= 1:
                raise Refusal(f"{name} is a share above 0 and at most 1, got {getattr(self, name)}")
        if self.lock < 1:
            raise Refusal(f"lock must be at least 1, got {self.lock}")


def annealed(step: int, steps: int, start: float, finish: float) -> float:
    """The share at `step` of `steps`: half a cosine from `start` to `finish`; a single step takes `start`."""
    if steps < 2:
        return start
    return finish + (start - finish) * (1 + math.cos(math.pi * step / (steps - 1))) / 2


def hide_random(session: CanvasSession, free: tuple[int, ...], count: int, dice: RandomNumbers) -> tuple[int, ...]:
    """A uniformly drawn subset: Tolerator."""
    return tuple(sorted(shuffled(free, dice)[:count]))


def hide_least_confident(session: CanvasSession, free: tuple[int, ...], count: int,
                         dice: RandomNumbers) -> tuple[int, ...]:
    """The positions whose token had the lowest probability when it was last written: low-confidence remasking."""
    known = {position: confidence for round in session.rounds
             for position, confidence in zip(round.positions, round.confidences, strict=True)}
    return tuple(sorted(sorted(free, key=lambda position: (known[position], position))[:count]))


def refine(session: CanvasSession, model: CanvasModel, rule: Refinement, forwards: int,
           dice: RandomNumbers) -> Iterator[CanvasSession]:
    """Yields the session after each of so many forwards on a full canvas; ends early when every position is locked."""
    free, same = session.start.masked, {}
    for step in range(forwards):
        if not free:
            return
        share = annealed(step, forwards, rule.start, rule.finish)
        here = dice.fork("refine", step)
        hidden = rule.hide(session, free, max(1, round(share * len(free))), here)
        row = model((session.canvas.erase(hidden),))[0]
        choices = drawn_again(session, row, hidden, rule, here)
        for choice in choices:
            old = session.canvas.tokens[choice.position]
            same[choice.position] = same.get(choice.position, 0) + 1 if choice.token == old else 0
        free = tuple(position for position in free if same.get(position, 0) < rule.lock)
        locked = tuple(position for position in session.start.masked if position not in set(free))
        session = session.after(round_of(choices, hidden=hidden, locked=locked))
        yield session


def drawn_again(session: CanvasSession, row: RowForecast, hidden: tuple[int, ...], rule: Refinement,
                dice: RandomNumbers) -> tuple[Choice, ...]:
    """New tokens for the share of hidden positions whose old token is least probable now; the others keep theirs."""
    old = {position: row.confidence_of(position, session.canvas.tokens[position]) for position in hidden}
    doubtful = sorted(hidden, key=lambda position: (old[position], position))
    chosen = sorted(doubtful[:max(1, math.ceil(rule.update * len(hidden) - 1e-9))])
    out = []
    for position in chosen:
        token = row.distribution(position, rule.temperature).draw(dice.at(position))
        out.append(Choice(position, token, row.confidence_of(position, token)))
    return tuple(out)
