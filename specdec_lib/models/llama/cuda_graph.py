"""Steps of fixed width over a fixed number of columns: shapes and addresses never change, so a CUDA graph holds them.

A step goes from tokens to logits and their statistics. Its inputs travel in one copy from pinned memory, its statistics
back in another. Rows are padded to the width. Padding is written behind the last row, where later rows overwrite it,
and sees the first column at least, so it stays finite. The arithmetic runs on any device and is tested on the CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Protocol
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from specdec_lib.models.llama.attention import visible
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.forward import LayerView, through_layers
from specdec_lib.models.llama.graph_capture import captured
from specdec_lib.models.llama.row_stats import packed_stats
from specdec_lib.models.llama.weights import LlamaWeights

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)
EARLIER = 64                                       # nodes before the step's rows that a draft may already have
FIRST = 256                                        # columns of the smallest step


WORKS: WeakSet[CapturedWork] = WeakSet()           # all there are, for whoever times them


def width_for(rows: int, earlier: int = 0) -> int | None:
    """The narrowest fixed width that holds these rows after `earlier` nodes; None if there is none."""
    return next((width for width in WIDTHS if rows <= width and earlier <= EARLIER), None)


def columns_for(rows: int) -> int:
    """The smallest power of two of columns that holds so many rows, so that few steps are captured."""
    return max(FIRST, 1 << (rows - 1).bit_length())


def room_for(start: int, width: int) -> int:
    """Columns that a step of this width at row `start` addresses."""
    return start + width + EARLIER


@lru_cache(512)
def window(parents: tuple[int, ...], committed: int, rows: int, both_ways: bool, width: int) -> np.ndarray:
    """Which of the columns from the first one that may be hidden each row sees [width, width + EARLIER], 0 or 1."""
    seen = visible(parents, committed, both_ways)[-rows:].numpy()
    out = np.zeros((width, width + EARLIER), np.uint8)
    out[:rows, :seen.shape[1]] = seen
    return out


class Head(Protocol):
    """A head that an early exit may have of its own: hidden states [rows, hidden] to logits [rows, len(ids) or V]."""

    ids: Tensor | None                             # tokens of its columns; None = all, in order

    def __call__(self, x: Tensor) -> Tensor: ...


class CapturedWork(ABC):
    """Arithmetic on inputs that always lie in the same place, so that a CUDA graph holds it.

    A caller writes `staged` after `wait`, and `send` copies it to `inputs`. `compute` runs on any device; it reads and
    writes `cache`, so no two of one cache run at once.
    """

    def __init__(self, size: int, cache: KVCache):
        self.cache, self.device = cache, cache.kv.device
        pinned = self.device.type == "cuda"
        self.staged = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
        self.inputs = torch.zeros(size, dtype=torch.uint8, device=self.device)
        self.copied = torch.cuda.Event() if pinned else None
        self.out: tuple[Tensor, ...] = ()
        self.graph, self.launched = None, 0
        WORKS.add(self)

    @abstractmethod
    def compute(self) -> tuple[Tensor, ...]:
        """What the graph holds: from `inputs` to tensors."""

    def wait(self) -> None:
        """Returns when the last copy has left the pinned memory."""
        if self.copied is not None:
            self.copied.synchronize()

    def send(self) -> None:
        """Copies what is staged to the device; the host does not wait for it."""
        self.inputs.copy_(self.staged, non_blocking=True)
        if self.copied is not None:
            self.copied.record()

    def launch(self) -> tuple[Tensor, ...]:
        """One launch of the graph, which the first call captures; elsewhere than on a GPU the same arithmetic."""
        self.launched += 1
        if self.copied is None:
            return self.compute()
        if self.graph is None:
            self.graph, self.out = captured(self.compute, self.cache)
        self.graph.replay()
        return self.out


class CapturedStep(CapturedWork):
    """A step of one width over the first `columns` rows of a cache, through the first `depth` layers and a head."""

    def __init__(self, width: int, columns: int, weights: LlamaWeights, cache: KVCache, rope: tuple[Tensor, Tensor],
                 depth: int, head: Head | None = None, products: bool = False):
        self.width, self.columns, self.weights, self.rope = width, columns, weights, rope
        self.depth, self.head, self.products = depth, head, products
        self.ids = weights.ids if head is None else head.ids
        self.size = 8 * (3 * width + 1)            # tokens, positions, rows, and the first column that may be hidden
        super().__init__(self.size + width * (width + EARLIER), cache)
        flat = self.staged.numpy()
        self.numbers, self.seen = flat[:self.size].view(np.int64), flat[self.size:].reshape(width, -1)

    def __call__(self, tokens: tuple[int, ...], positions: list[int], start: int, earlier: int,
                 seen: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states, logits and statistics of these rows, which begin at row `start`; valid until the next step.

        `seen` is the window of columns from `earlier` rows before `start` on.
        """
        width, rows = self.width, len(tokens)
        self.wait()
        numbers = self.numbers
        numbers[:] = 0
        numbers[:rows], numbers[width:width + rows] = tokens, positions
        numbers[2 * width:3 * width] = range(start, start + width)
        numbers[-1] = start - earlier
        self.seen[:] = seen
        if start == earlier:
            self.seen[:, 0] = 1                    # nothing is before the window, and padding must see something
        self.send()
        hidden, logits, packed = self.launch()
        return hidden[:rows], logits[:rows], packed[:rows]

    def compute(self) -> tuple[Tensor, Tensor, Tensor]:
        """From the inputs to hidden states [width, hidden], logits [width, V] and their packed statistics."""
        width, numbers = self.width, self.inputs[:self.size].view(torch.long)
        tokens, positions, where = numbers[:-1].view(3, width)
        mask = self.mask(numbers[-1:], self.inputs[self.size:].view(width, -1))
        view = LayerView(where, self.columns, self.rope[0][positions], self.rope[1][positions], full=mask,
                         products=self.products)
        x = through_layers(self.weights.embedding[tokens], self.weights, self.cache, view, 0, self.depth)
        logits = self.weights.head(self.weights.normed(x)) if self.head is None else self.head(x)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return x, logits, packed_stats(logits, self.ids)

    def mask(self, first: Tensor, seen: Tensor) -> Tensor:
        """[group * width, columns], 0 or -inf: all columns before `first` are seen, and `seen` of those from there."""
        width, group, dtype = self.width, self.weights.shape.group, self.weights.dtype
        column = torch.arange(self.columns, device=self.device)
        whole = (column < first).to(torch.uint8).repeat(width, 1)
        whole.index_copy_(1, first + column[:seen.shape[1]], seen)
        hidden = torch.full((), float("-inf"), dtype=dtype, device=self.device)
        full = torch.where(whole.bool().expand(group, -1, -1), torch.zeros_like(hidden), hidden)
        return full.view(group * width, self.columns)
