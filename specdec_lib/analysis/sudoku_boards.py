"""A decode of a Sudoku -> what `figures.board` draws of each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specdec_lib.canvas.types import CanvasSession


class BoardFrame(NamedTuple):
    """The arguments of `figures.board` in order."""

    digits: tuple[int, ...]
    clues: tuple[int, ...]
    confidence: tuple[float | None, ...]           # with which the digit that stands there was last written
    order: dict[int, int]                          # cell -> the round that last wrote it, from 1
    revised: tuple[int, ...]                       # cells that held another digit before
    wrong: tuple[int, ...]


def board_frame(session: CanvasSession, step: int, answer: Sequence[int]) -> BoardFrame:
    """The board after `step` rounds (0: as it was given), `answer` its solution. Cells that are open have no order."""
    start, canvas = session.start, session.canvases()[step]
    last: dict[int, tuple[int, float]] = {}
    held: dict[int, set[int]] = {}
    for number, one in enumerate(session.rounds[:step], 1):
        for cell, token, sure in zip(one.positions, one.tokens, one.confidences, strict=True):
            last[cell] = number, sure
            held.setdefault(cell, set()).add(token)
    filled = [cell for cell in start.area if canvas.tokens[cell] != canvas.mask]
    return BoardFrame(canvas.tokens, start.tokens,
                      tuple(last[cell][1] if cell in last and cell in filled else None for cell in range(len(canvas))),
                      {cell: last[cell][0] for cell in filled},
                      tuple(cell for cell in filled if len(held[cell] - {canvas.mask}) > 1),
                      tuple(cell for cell in filled if canvas.tokens[cell] != answer[cell]))
