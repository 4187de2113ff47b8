"""The Sudoku network on some of its cells: the others are there by the keys and values of an earlier forward.

A cell reads nine cells of each kind of unit, so attention gathers the keys and values of those members alone.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.canvas.sudoku import CELLS, SIDE
from specdec_lib.canvas.sudoku_net import EPS, KINDS, SudokuLayer, SudokuNet, unit_index

KeptCells = list[Tensor]                           # per layer and pass: keys and values [cells, kinds, 2, heads, size]


def keep_cells(net: SudokuNet, canvas: Tensor) -> tuple[Tensor, KeptCells]:
    """Logits [81, 9] of a canvas [81], and the keys and values of its cells."""
    shape = net.shape
    nothing = net.cell.new_zeros(CELLS, KINDS, 2, shape.heads, shape.size)
    return some_cells(net, canvas, torch.arange(CELLS), [nothing] * (shape.layers * shape.loops))


def some_cells(net: SudokuNet, digits: Tensor, cells: Tensor, kept: KeptCells) -> tuple[Tensor, KeptCells]:
    """Logits [n, 9] of n cells that hold `digits`, and what was kept with theirs in its place."""
    seen, members = net.cell[digits], unit_members()[cells]
    x, before, after = torch.zeros_like(seen), iter(kept), []
    for _ in range(net.shape.loops):
        x = x + seen
        for layer in net.layers:
            assert isinstance(layer, SudokuLayer)
            read, now = read_members(layer, x, cells, members, next(before))
            x = x + read
            x = x + layer.feed_forward(x)
            after.append(now)
    return net.logits(x), after


def read_members(layer: SudokuLayer, x: Tensor, cells: Tensor, members: Tensor,
                 kept: Tensor) -> tuple[Tensor, Tensor]:
    """What n cells, states [n, width], read from the members [n, kinds, 9] of their units; and keys and values now."""
    shape = layer.shape
    mixed = F.linear(F.rms_norm(x, x.shape[-1:], layer.before, EPS), layer.qkv)
    mixed = mixed.view(len(x), KINDS, 3, shape.heads, shape.size)
    kept = kept.index_copy(0, cells, mixed[:, :, 1:])
    near = kept[members, torch.arange(KINDS)[:, None]]             # [n, kinds, 9, 2, heads, size]
    weights = torch.einsum("nkhs,nkmhs->nkhm", mixed[:, :, 0], near[..., 0, :, :]) * shape.size ** -0.5
    read = torch.einsum("nkhm,nkmhs->nkhs", weights.softmax(-1), near[..., 1, :, :])
    return F.linear(read.flatten(1), layer.out), kept


@cache
def unit_members() -> Tensor:
    """The cells [81, kinds, 9] of every cell's units, each in the order of its unit."""
    there, back = unit_index()
    units = (there // KINDS).view(KINDS * SIDE, SIDE)
    return units[(back // SIDE).view(CELLS, KINDS)]
