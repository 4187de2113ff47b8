"""The Sudoku world: held-out puzzles with one solution, and the trained network as the model that fills them.

Token ids are the digits, and 0 is the mask. The network runs in float32; its logits are widened to float64 before the
softmax, so that a cell that is nearly certain (1 - p < 6e-8, which float32 rounds to 1) still has its rank among others
like it. What is left of ties is counted by the rules that meet them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.canvas.forecast import Forecast, RowForecast, forecast
from specdec_lib.canvas.sudoku import BLANK, CELLS, Puzzle, board_lines, puzzles
from specdec_lib.canvas.sudoku_cache import KeptCells, keep_cells, some_cells
from specdec_lib.canvas.sudoku_net import SudokuNet, SudokuShape
from specdec_lib.canvas.types import Canvas, CanvasTask, CanvasWorld
from specdec_lib.checkpoints.card import SHIPPED
from specdec_lib.checkpoints.checkpoint_files import load_checkpoint
from specdec_lib.checkpoints.trainable import CANVAS
from specdec_lib.models.threads import for_short_work
from specdec_lib.types import Refusal

BLANKS = (30, 40, 50, 54)                          # of the tasks, in turn


@dataclass(frozen=True)
class SudokuModel:
    """The network as a model of canvases: one batched forward for all of them, every cell forecast."""

    net: SudokuNet
    vocab: int = 10
    mask: int = BLANK
    end: tuple[int, ...] = ()
    caches: bool = True

    def __call__(self, canvases: Sequence[Canvas]) -> Forecast:
        with torch.inference_mode():
            logits = self.net(torch.tensor([canvas.tokens for canvas in canvases]))
        return digits_forecast(logits, range(CELLS))

    def keep(self, canvas: Canvas) -> tuple[RowForecast, KeptCells]:
        """One whole forward, and the keys and values of all cells; see `block_cache.CachingModel`."""
        with torch.inference_mode():
            logits, kept = keep_cells(self.net, torch.tensor(canvas.tokens))
        return digits_forecast(logits[None], range(CELLS))[0], kept

    def within(self, canvas: Canvas, kept: KeptCells, positions: tuple[int, ...]) -> RowForecast:
        """The forecast of these cells against what was kept of the others."""
        with torch.inference_mode():
            cells = torch.tensor(positions)
            logits, _ = some_cells(self.net, torch.tensor(canvas.tokens)[cells], cells, kept)
        return digits_forecast(logits[None], positions)[0]


def digits_forecast(logits: Tensor, positions: Sequence[int]) -> Forecast:
    """The forecast of the digits' logits [rows, positions, 9], widened, with the mask's column before them."""
    return forecast(F.pad(logits.double(), (1, 0), value=-torch.inf), positions, None)


def load_sudoku(folder: Path | None = None) -> SudokuModel:
    """The trained network of a folder of checkpoints, by default the shipped one. Refusal if missing or damaged."""
    stored = load_checkpoint(SHIPPED if folder is None else folder, CANVAS)
    try:
        net = SudokuNet(SudokuShape(**stored.meta["shape"]))
        net.load_state_dict(dict(stored.state))
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise Refusal(f"the checkpoint {CANVAS} does not hold the tensors of a Sudoku network: make it again with "
                      f"`specdec train {CANVAS}`") from None
    for_short_work()
    return SudokuModel(net.eval().requires_grad_(False))


def puzzle_canvas(clues: Sequence[int]) -> Canvas:
    """The canvas of these clues: the blanks are masked and are all that is ever filled."""
    return Canvas(tuple(clues), BLANK, tuple(place for place, digit in enumerate(clues) if digit == BLANK))


def puzzle_task(puzzle: Puzzle, name: str) -> CanvasTask:
    """The task of this puzzle; its family is the number of its blanks."""
    canvas = puzzle_canvas(puzzle.clues)
    return CanvasTask(name, canvas, puzzle.solution, f"{len(canvas.area)} blanks")


def sudoku_tasks(limit: int, seed: int = 0, blanks: Sequence[int] = BLANKS) -> tuple[CanvasTask, ...]:
    """`limit` held-out puzzles whose numbers of blanks take turns; the same first ones for every limit."""
    if not blanks or len(set(blanks)) < len(blanks):
        raise Refusal(f"blanks are one or more different numbers, got {list(blanks)}")
    made = {number: puzzles(-(-(limit - turn) // len(blanks)) if limit > turn else 0, number, seed)
            for turn, number in enumerate(blanks)}
    turns = ((number, place) for place in count() for number in blanks)
    return tuple(puzzle_task(made[number][place], f"sudoku-{number}-{place:03d}")
                 for (number, place), _ in zip(turns, range(limit), strict=False))


def cells_right(task: CanvasTask, canvas: Canvas) -> dict[str, float]:
    """The share of the blanks that hold the solution's digit."""
    assert task.answer is not None                 # every puzzle has its solution
    return {"cells_right": sum(canvas.tokens[place] == task.answer[place] for place in canvas.area) / len(canvas.area)}


def sudoku_world(tasks: Sequence[CanvasTask], model: SudokuModel, about: dict[str, str | int | float]) -> CanvasWorld:
    """The world of these tasks; solved means that every cell equals the only solution."""
    return CanvasWorld("sudoku", model, tuple(tasks), lambda task, canvas: canvas.tokens == task.answer, cells_right,
                       lambda canvas: board_lines(canvas.tokens), about)


def open_world(limit: int, seed: int, blanks: Sequence[int] = BLANKS, folder: Path | None = None) -> CanvasWorld:
    """Held-out puzzles with these numbers of blanks in turn, and the trained network."""
    stored = load_checkpoint(SHIPPED if folder is None else folder, CANVAS).card
    about = {"checkpoint": CANVAS, "sha256": stored["sha256"], "parameters": stored["parameters"], "seed": seed}
    return sudoku_world(sudoku_tasks(limit, seed, blanks), load_sudoku(folder), about)
