"""What a decoded canvas is worth and what its forwards cost: wrong positions, corrections both ways, time by rows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

from specdec_lib.canvas.types import Canvas, CanvasModel, CanvasSession


class Corrections(NamedTuple):
    """Tokens that a refining round replaced by another one, by what they were and became; zero where nothing was."""

    to_right: int = 0                              # wrong before, right after
    to_wrong: int = 0                              # right before, wrong after
    still_wrong: int = 0                           # wrong before, wrong in another way after
    unknown: int = 0                               # replaced, where the answer is not known


def corrections(session: CanvasSession, answer: Sequence[int] | None) -> Corrections:
    """Counts over all positions that a round had hidden and then wrote with another token than before."""
    counts = [0, 0, 0, 0]
    for before, round in zip(session.canvases(), session.rounds, strict=False):
        hidden = frozenset(round.hidden)
        for position, token in zip(round.positions, round.tokens, strict=True):
            old = before.tokens[position]
            if position in hidden and token != old:
                true = None if answer is None else answer[position]
                counts[3 if true is None else 0 if token == true else 1 if old == true else 2] += 1
    return Corrections(*counts)


def wrong_positions(canvas: Canvas, answer: Sequence[int] | None) -> int | None:
    """How many positions of the area differ from the answer; None where there is none."""
    return None if answer is None else sum(canvas.tokens[at] != answer[at] for at in canvas.area)


def row_costs(model: CanvasModel, canvas: Canvas, rows: Sequence[int] = (1, 2, 4, 8),
              repeats: int = 11) -> dict[int, float]:
    """Seconds of a forward by its number of rows: medians, the row counts in turn, after one forward of each."""
    for count in rows:
        model((canvas,) * count)
    times: dict[int, list[float]] = {count: [] for count in rows}
    for _ in range(repeats):
        for count in rows:
            began = perf_counter()
            model((canvas,) * count)
            times[count].append(perf_counter() - began)
    return {count: median(some) for count, some in times.items()}
