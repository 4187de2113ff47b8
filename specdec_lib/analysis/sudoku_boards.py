"""A decode of a Sudoku -> what `figures.board` draws of each step, and what solved boards say of two ways to fill."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

from specdec_lib.analysis.wording import how_many
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


def sign_test(one: Sequence[bool], other: Sequence[bool]) -> float:
    """The exact two-sided p of the boards that one side alone solves, paired: McNemar's test; 1 where there is none."""
    alone = [sum(a and not b for a, b in zip(*sides, strict=True)) for sides in ((one, other), (other, one))]
    tail = sum(comb(sum(alone), few) for few in range(min(alone) + 1))
    return min(1.0, 2 * tail / 2 ** sum(alone))


def solved_sentence(name: str, solved: Sequence[bool], other: str, others: Sequence[bool], level: float = 0.05) -> str:
    """How many of the same boards two ways solve, and whether `sign_test` tells them apart at this level."""
    p = sign_test(solved, others)
    said = "not told apart" if p >= level else "more solved" if sum(solved) > sum(others) else "fewer solved"
    return (f"{name} solves {how_many(solved)} board{'s' * (len(solved) != 1)}, {other} {how_many(others)}: {said} "
            f"(exact sign test, p = {p:.3f})")
