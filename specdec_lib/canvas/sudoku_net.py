"""A masked diffusion transformer for Sudoku: attention along rows, columns and boxes, the same layers run twice.

A cell attends to the nine cells of its row, of its column and of its box, with heads of their own for each kind. This
is all it is told about positions, so permuting rows within a band, bands, columns within a stack or stacks permutes the
output alike: no position embedding has to be learned for each cell. The layers are a block that runs `loops` times,
each time with the embedding of the canvas added again, and each pass ends in logits of its own: the last pass
predicts, the earlier ones take part in the training loss only. There is no time input: a masked model reads how much is
masked off the canvas (Ou et al. 2024, arXiv 2406.03736).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.canvas.sudoku import BOXES, CELLS, COLUMNS, ROWS, SIDE

EPS = 1e-6
KINDS = 3                                          # of units: rows, columns, boxes


@dataclass(frozen=True)
class SudokuShape:
    """Sizes of the network: layers of the block, how often it runs, heads for each kind of unit and their size."""

    width: int = 128
    layers: int = 6
    loops: int = 2
    heads: int = 2
    size: int = 16
    hidden: int = 320

    def __post_init__(self):
        if min(asdict(self).values()) < 1:
            raise ValueError(f"every size is at least 1, got {self}")


def unit_index() -> tuple[Tensor, Tensor]:
    """Two index vectors [243]: from (cell, kind) to (kind, unit, member), and back."""
    order = [place * KINDS + kind for kind, which in enumerate((ROWS, COLUMNS, BOXES))
             for unit in range(SIDE) for place in range(CELLS) if which[place] == unit]
    there = torch.tensor(order)
    return there, torch.argsort(there)


class SudokuLayer(nn.Module):
    """Attention along the three kinds of units, then a gated feed-forward; normed before, added after."""

    def __init__(self, shape: SudokuShape, dice: torch.Generator):
        super().__init__()
        self.shape = shape
        inner = KINDS * shape.heads * shape.size

        def matrix(after: int, before: int, scale: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.randn(after, before, generator=dice) * (scale * before ** -0.5))

        small = (2 * shape.layers * shape.loops) ** -0.5               # the sum over depth stays of size one
        self.before, self.between = nn.Parameter(torch.ones(shape.width)), nn.Parameter(torch.ones(shape.width))
        self.qkv, self.out = matrix(3 * inner, shape.width), matrix(shape.width, inner, small)
        self.gate_up, self.down = matrix(2 * shape.hidden, shape.width), matrix(shape.width, shape.hidden, small)

    def forward(self, x: Tensor, there: Tensor, back: Tensor) -> Tensor:
        """Hidden states [B, 81, width] after this layer."""
        x = x + self.attend(F.rms_norm(x, x.shape[-1:], self.before, EPS), there, back)
        return x + self.feed_forward(x)

    def feed_forward(self, x: Tensor) -> Tensor:
        """What the gated feed-forward adds to states [..., width]."""
        gate, up = F.linear(F.rms_norm(x, x.shape[-1:], self.between, EPS), self.gate_up).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.down)

    def attend(self, x: Tensor, there: Tensor, back: Tensor) -> Tensor:
        """What each cell reads from its row, its column and its box."""
        rows, heads, size = len(x), self.shape.heads, self.shape.size
        mixed = F.linear(x, self.qkv).view(rows, CELLS * KINDS, 3 * heads * size)[:, there]
        q, k, v = mixed.view(rows * KINDS * SIDE, SIDE, 3, heads, size).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT * size ** -0.5).softmax(-1)
        read = (weights @ v).transpose(1, 2).reshape(rows, CELLS * KINDS, heads * size)
        return F.linear(read[:, back].view(rows, CELLS, KINDS * heads * size), self.out)


class SudokuNet(nn.Module):
    """Canvases [B, 81] of 0 (masked) and digits -> logits of the digits 1 to 9 for every cell."""

    there: Tensor                                  # buffers
    back: Tensor

    def __init__(self, shape: SudokuShape = SudokuShape(), seed: int = 0):
        super().__init__()
        dice = torch.Generator().manual_seed(seed)
        self.shape = shape
        self.cell = nn.Parameter(torch.randn(SIDE + 1, shape.width, generator=dice))
        self.layers = nn.ModuleList(SudokuLayer(shape, dice) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.head = nn.Parameter(torch.randn(SIDE, shape.width, generator=dice) * (0.1 * shape.width ** -0.5))
        there, back = unit_index()
        self.register_buffer("there", there, persistent=False)
        self.register_buffer("back", back, persistent=False)

    def passes(self, canvas: Tensor) -> list[Tensor]:
        """The logits [B, 81, 9] after each pass through the block; the last ones are the prediction."""
        seen = self.cell[canvas]
        x, out = torch.zeros_like(seen), []
        for _ in range(self.shape.loops):
            x = x + seen
            for layer in self.layers:
                x = layer(x, self.there, self.back)
            out.append(self.logits(x))
        return out

    def logits(self, x: Tensor) -> Tensor:
        """Logits [..., 9] of states [..., width]."""
        return F.linear(F.rms_norm(x, x.shape[-1:], self.norm, EPS), self.head)

    def forward(self, canvas: Tensor) -> Tensor:
        """Logits [B, 81, 9] of the digits 1 to 9."""
        return self.passes(canvas)[-1]
