"""Steps of fixed width over the whole cache: shapes and addresses never change, so a CUDA graph can capture them.

Rows are padded to the width. Padding is written behind the last row, where later rows overwrite it, and sees the first
column alone, so it stays finite. The arithmetic runs on any device and is tested on the CPU. The capture itself needs
CUDA and is untested until a run on a GPU is recorded.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specdec_lib.models.llama.forward import LayerView

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
Through = Callable[[Tensor, LayerView], Tensor]    # embedded rows and their view -> hidden states


def width_for(rows: int) -> int | None:
    """The narrowest fixed width that holds these rows; None if there is none."""
    return next((width for width in WIDTHS if rows <= width), None)


class CapturedStep:
    """A step of one width over one cache of `capacity` rows."""

    def __init__(self, width: int, capacity: int, group: int, embedding: Tensor, rope: tuple[Tensor, Tensor],
                 through: Through):
        device, dtype = embedding.device, embedding.dtype
        self.width, self.capacity, self.group, self.through = width, capacity, group, through
        self.embedding, self.rope = embedding, rope
        self.inputs = torch.zeros(3, width, dtype=torch.long, device=device)     # tokens, positions, rows
        self.hidden = torch.zeros(width, capacity, dtype=dtype, device=device)   # the mask: 0 or -inf
        self.out: Tensor | None = None
        self.graph = None

    def __call__(self, tokens: tuple[int, ...], positions: list[int], start: int, block: Tensor | None) -> Tensor:
        """The hidden states [rows, hidden] of these rows, which begin at row `start`; valid until the next step."""
        rows, pad = len(tokens), self.width - len(tokens)
        packed = [list(tokens) + [0] * pad, positions + [0] * pad, list(range(start, start + self.width))]
        self.inputs.copy_(torch.tensor(packed))
        self.hidden.fill_(float("-inf"))
        self.hidden[:, 0] = 0
        self.hidden[:rows, :start + rows] = 0
        if block is not None:
            self.hidden[:rows, start + rows - block.shape[1]:start + rows] = block
        if self.embedding.device.type != "cuda":
            return self.compute()[:rows]
        if self.graph is None:
            self.capture()
        assert self.graph is not None
        assert self.out is not None
        self.graph.replay()
        return self.out[:rows]

    def compute(self) -> Tensor:
        tokens, positions, where = self.inputs
        view = LayerView(where, self.capacity, self.rope[0][positions], self.rope[1][positions],
                         full=self.hidden.repeat(self.group, 1))
        return self.through(self.embedding[tokens], view)

    def capture(self) -> None:
        """Records the step once; every later call is a single launch."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):              # a first run outside the graph initialises the libraries
            self.compute()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.compute()
