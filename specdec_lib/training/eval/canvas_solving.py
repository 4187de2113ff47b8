"""Solved puzzles of a Sudoku network in training: filled cell by cell in two orders, and all cells at once.

The same greedy rules as `canvas/`, written for tensors so that hundreds of puzzles share their forwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lib.canvas.sudoku import BLANK, Puzzle
from specdec_lib.canvas.sudoku_net import SudokuNet

CONFIDENT, RANDOM, AT_ONCE = "most confident first", "random order", "all at once"
ORDERS = (CONFIDENT, RANDOM, AT_ONCE)


@torch.no_grad()
def solved_by_order(net: SudokuNet, puzzles: Sequence[Puzzle], orders: Sequence[str] = ORDERS,
                    seed: int = 0) -> dict[str, int]:
    """How many of these puzzles are solved when their blanks are filled in each order."""
    clues = torch.tensor([puzzle.clues for puzzle in puzzles])
    truth = torch.tensor([puzzle.solution for puzzle in puzzles])
    return {order: int((fill_in_order(net, clues, order, seed) == truth).all(1).sum()) for order in orders}


@torch.no_grad()
def fill_in_order(net: SudokuNet, clues: Tensor, order: str, seed: int = 0) -> Tensor:
    """The canvases [B, 81] when every step fills one blank of each row with its most probable digit."""
    canvas = clues.clone()
    if order == AT_ONCE:
        return torch.where(canvas == BLANK, net(canvas).argmax(-1) + 1, canvas)
    ranks = torch.rand(canvas.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for _ in range(int((canvas == BLANK).sum(1).max())):
        confidence, digit = net(canvas).double().softmax(-1).max(-1)
        score = confidence if order == CONFIDENT else ranks
        place = score.masked_fill(canvas != BLANK, -1.0).argmax(1, keepdim=True)
        chosen = torch.where(canvas.gather(1, place) == BLANK, digit.gather(1, place) + 1, canvas.gather(1, place))
        canvas = canvas.scatter(1, place, chosen)
    return canvas


@torch.no_grad()
def cell_figures(net: SudokuNet, solved: Tensor, canvas: Tensor) -> tuple[float, float]:
    """Mean negative log-likelihood (nats) of the masked cells, and the share whose most probable digit is right."""
    hidden = canvas == BLANK
    logp = net(canvas)[hidden].log_softmax(-1)
    truth = solved[hidden] - 1
    return float(-logp.gather(1, truth[:, None]).mean()), float((logp.argmax(-1) == truth).double().mean())
