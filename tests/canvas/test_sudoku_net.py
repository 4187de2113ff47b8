"""The Sudoku network: which cells it tells apart, which cells it reads, and that training and decoding agree."""

import numpy as np
import pytest
import torch

from specdec_lib.canvas.sudoku import BOXES, CELLS, COLUMNS, ROWS, SIDE, puzzles
from specdec_lib.canvas.sudoku_net import SudokuNet, SudokuShape

SMALL = SudokuShape(width=16, layers=2, loops=2, heads=1, size=8, hidden=16)


@pytest.fixture(scope="module")
def net():
    net = SudokuNet(SMALL, seed=1).double()
    with torch.no_grad():                          # the head starts near zero
        net.head.mul_(30)
    return net


@pytest.fixture(scope="module")
def clues():
    return torch.tensor([puzzle.clues for puzzle in puzzles(3, 40)])


def test_every_cell_gets_a_logit_of_every_digit_after_each_pass(net, clues):
    passes = net.passes(clues)
    assert [tuple(logits.shape) for logits in passes] == [(3, CELLS, SIDE)] * SMALL.loops
    torch.testing.assert_close(net(clues), passes[-1])
    assert (passes[0] - passes[1]).abs().max() > 1e-3


def test_permuting_the_lines_of_a_board_permutes_the_logits_alike(net, clues):
    dice = np.random.default_rng(0)
    rows, columns = (np.concatenate([3 * band + dice.permutation(3) for band in dice.permutation(3)]) for _ in range(2))
    cells = torch.from_numpy((rows[:, None] * SIDE + columns).reshape(-1))
    assert cells.tolist() != list(range(CELLS))
    torch.testing.assert_close(net(clues[:, cells]), net(clues)[:, cells])


def test_lines_of_different_bands_may_not_change_places(net, clues):
    rows = [3, 1, 2, 0, *range(4, 9)]
    cells = torch.tensor([SIDE * row + column for row in rows for column in range(SIDE)])
    assert (net(clues[:, cells]) - net(clues)[:, cells]).abs().max() > 1e-3


def test_one_layer_reads_the_row_the_column_and_the_box_and_nothing_else(clues):
    one = SudokuNet(SudokuShape(width=16, layers=1, loops=1, heads=1, size=8, hidden=16), seed=2)
    x = one.cell[clues[:1]].detach().requires_grad_()
    place = 4 * SIDE + 7
    one.layers[0](x, one.there, one.back)[0, place].sum().backward()
    read = {at for at in range(CELLS) if x.grad[0, at].abs().max() > 0}
    assert read == {at for at in range(CELLS) if any(kind[at] == kind[place] for kind in (ROWS, COLUMNS, BOXES))}


def test_a_shape_without_layers_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        SudokuShape(layers=0)


def test_the_default_shape_has_a_million_parameters():
    assert 1e6 < sum(parameter.numel() for parameter in SudokuNet().parameters()) < 1.5e6
