"""The cache of a batch: keys and values of its rows in blocks of a few, each as wide as its longest row asks for.

Rows of like length in one block leave little padding. Memory that is let go serves again. Knows nothing about weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specdec_lib.models.llama.config import LlamaConfig

PACK = 32                                          # columns are taken by that many, so shapes repeat
AHEAD = 16                                         # columns of a new block that its rows grow into at least
SIZE = {"cpu": 8}                                  # rows of a block; elsewhere all are one, since there calls cost more


class RowBlocks:
    """Blocks [layers, 2, rows, kv_heads, columns, head_dim]; row r is place r % size of block r // size.

    A block is contiguous and no wider than it must be: products over a slice of columns would copy it first.
    """

    def __init__(self, shape: LlamaConfig, layers: int, dtype: torch.dtype, device: torch.device):
        self.inner, self.kind = (layers, shape.kv_heads, shape.head_dim), {"dtype": dtype, "device": device}
        self.split = SIZE.get(device.type)
        self.size = self.split or 1
        self.blocks: list[Tensor] = []
        self.memory: list[Tensor] = []             # flat, of each block
        self.spare: list[Tensor] = []              # flat, of earlier blocks; finite numbers in them
        self.most = 0                              # blocks that were ever open at once

    def open(self, rows: int) -> None:
        """That many rows, with nothing in them that counts."""
        self.spare, self.blocks, self.memory = self.largest(self.spare + self.memory), [], []
        self.size = self.split or rows
        for span in self.spans(range(rows)):
            self.add(len(span), 0)
        self.most = max(self.most, len(self.blocks))

    def spans(self, rows: Sequence[int]) -> list[Sequence[int]]:
        """These rows, or what belongs to them, by blocks."""
        return [rows[start:start + self.size] for start in range(0, len(rows), self.size)]

    def largest(self, spare: list[Tensor]) -> list[Tensor]:
        """As many of these as there were ever blocks, so that what is spare is no more than what was used."""
        return sorted(spare, key=len)[max(0, len(spare) - self.most):]

    def add(self, rows: int, columns: int) -> None:
        """Opens one more block, with room for what it holds and some more."""
        block, flat = self.take(rows, columns)
        self.blocks.append(block)
        self.memory.append(flat)

    def take(self, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """A block and its memory: the smallest spare one that will do, else new."""
        layers, kv_heads, d = self.inner
        shape = (layers, 2, rows, kv_heads, packed(columns + AHEAD), d)
        count = math.prod(shape)
        fits = [place for place, flat in enumerate(self.spare) if len(flat) >= count]
        flat = (self.spare.pop(min(fits, key=lambda place: len(self.spare[place]))) if fits
                else torch.zeros(count, **self.kind))
        return flat[:count].view(shape), flat

    def reserve(self, columns: Sequence[int]) -> None:
        """Room in every block for that many columns."""
        for place, (block, wanted) in enumerate(zip(self.blocks, columns, strict=True)):
            held = block.shape[4]
            if held < wanted:
                wider, flat = self.take(block.shape[2], max(wanted, held + held // 4 if self.split is None else 0))
                wider[:, :, :, :, :held] = block
                self.spare = self.largest([*self.spare, self.memory[place]])
                self.blocks[place], self.memory[place] = wider, flat

    def put(self, level: int, rows: Sequence[int], sizes: Sequence[int], new: Tensor) -> None:
        """Writes the first `sizes` columns of new [2, rows, kv_heads, columns, head_dim] into layer `level`."""
        if self.split is None:                     # one block: one call, which also writes what later tokens overwrite
            width = max(sizes)
            self.blocks[0][level][:, torch.tensor(list(rows)).to(new.device), :, :width] = new[:, :, :, :width]
            return
        for place, (row, size) in enumerate(zip(rows, sizes, strict=True)):
            block = self.blocks[row // self.size]
            block[level, :, row % self.size, :, :size] = new[:, place, :, :size]

    def keep(self, rows: Sequence[int], sizes: Sequence[int]) -> None:
        """Goes on with these rows, in this order, of which the first `sizes` columns count."""
        memory, size, old = self.memory, self.size, self.blocks
        self.size, self.blocks, self.memory = self.split or max(len(rows), 1), [], []
        for span, widths in zip(self.spans(rows), self.spans(sizes), strict=True):
            self.add(len(span), max(widths))
            for place, (row, width) in enumerate(zip(span, widths, strict=True)):
                self.blocks[-1][:, :, place, :, :width] = old[row // size][:, :, row % size, :, :width]
        self.spare = self.largest(self.spare + memory) if self.split else []

    def layers(self) -> Iterator[tuple[Tensor, ...]]:
        """Per layer its blocks [2, rows, kv_heads, columns, head_dim]."""
        return zip(*(block.unbind(0) for block in self.blocks), strict=True)


def packed(columns: int) -> int:
    """At least that many columns, as blocks have them."""
    return -(-columns // PACK) * PACK
