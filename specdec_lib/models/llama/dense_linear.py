"""Linear layers of plain numbers in our own C code (`dense_linear.c`), in bfloat16 and float32 on a CPU.

A decode feeds a few rows at a time, so the time is that of reading the weights once: they lie in the order in which
they are read, in large pages. `data/results/forwards.md` says what that saves, with the commands: on two cores of an
AMD EPYC a forward of SmolLM2-135M in bfloat16 took 19 ms with oneDNN's kernels, 11 with the first of ours, 8 like this.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.large_pages import in_large_pages
from specdec_lib.models.llama.compiled_linear import (
    ADDRESS,
    INT64,
    PLAIN,
    LinearCode,
    compiled_functions,
    product,
)
from specdec_lib.models.llama.path_attention import DTYPES, has_vectors

SOURCE = Path(__file__).with_suffix(".c")
LANES = 16                                         # outputs of a tile, and words of a vector
WORD = torch.int32                                 # one number of single precision, or two in bfloat16


class DenseRecord(ctypes.Structure):
    """`Matrix` of the C code."""

    _fields_ = (("out", INT64), ("in", INT64), ("weights", ADDRESS), ("bias", ADDRESS))


class DenseLinear:
    """y = x W^T + b for x [n, in], with W [out, in] in the dtype of x. Makes a copy of W in tiles."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, code: LinearCode | None = None):
        found = code or dense_code(weight.dtype)
        assert found is not None, f"there is no compiled code for {weight.dtype}: ask `dense_code` first"
        self.code, (self.out, self.into) = found, weight.shape
        self.tiles, self.bias = in_tiles(weight, found), None if bias is None else bias.float().contiguous()
        self.record = DenseRecord(self.out, self.into, self.tiles.data_ptr(),
                                   None if self.bias is None else self.bias.data_ptr())
        self.address = ctypes.addressof(self.record)

    def __call__(self, x: Tensor, eps: float = PLAIN) -> Tensor:
        """y [n, out]; with `eps`, x is divided by its root mean square first."""
        return product(self, x, eps)

    def dense(self) -> Tensor:
        """The plain weight [out, in]."""
        tiles = torch.empty_like(self.tiles)
        for first, group in groups(self.tiles, self.code):
            tiles[first:first + group.shape[0] * group.shape[1]].view(group.shape).copy_(group)
        return tiles.permute(0, 2, 1, 3).reshape(len(tiles) * LANES, -1)[:self.out, :self.into].contiguous()

    def put(self, row: int, weight: Tensor) -> None:
        """Makes `weight` [into] the weights of this output."""
        tile, lane = divmod(row, LANES)
        for first, group in groups(self.tiles, self.code):
            place, beside = divmod(tile - first, group.shape[1])
            if 0 <= place < len(group):
                to = group[place, beside, :, lane]
                to.copy_(F.pad(weight, (0, to.numel() - self.into)).view(to.shape))

    def rows(self, ids: Tensor) -> DenseLinear:
        """The same layer with these output rows alone."""
        return DenseLinear(self.dense()[ids], None if self.bias is None else self.bias[ids], self.code)


def in_tiles(weight: Tensor, code: LinearCode) -> Tensor:
    """Memory of W [out, in] for the C code, as large as [tiles, words, LANES, numbers of a word], in its order.

    Zeros stand behind the last output and input.
    """
    out, into = weight.shape
    numbers = 4 // weight.element_size()
    missing = (0, -into % (numbers * LANES), 0, -out % LANES)
    padded = (F.pad(weight, missing) if any(missing) else weight.contiguous()).view(WORD)  # torch moves words sooner
    tiles = padded.view(-1, LANES, padded.shape[1]).permute(0, 2, 1)
    memory = in_large_pages((*tiles.shape, numbers), weight.dtype)
    for first, group in groups(memory.view(WORD)[..., 0], code):
        group.copy_(tiles[first:first + group.shape[0] * group.shape[1]].unflatten(0, group.shape[:2]))
    return memory


def groups(memory: Tensor, code: LinearCode) -> Iterator[tuple[int, Tensor]]:
    """For each run of equal groups its first tile, and its memory as [groups, tiles, words, LANES, ...].

    Groups of tiles that are multiplied at once lie word by word; none crosses the middle of an even number of tiles.
    """
    most, count = code.library.tiles_together(), len(memory)
    half = max(1, count // 2 if count % 2 == 0 else count)
    for begin in range(0, count, half):
        whole = half // most * most
        for first, size, end in ((begin, most, begin + whole), (begin + whole, half - whole, begin + half)):
            if first < end:
                _, words, *word = memory.shape
                yield first, memory[first:end].view(-1, words, size, *word).transpose(1, 2)


def dense_code(dtype: torch.dtype) -> LinearCode | None:
    """The compiled functions for weights of this dtype; None where nothing compiles."""
    return compiled_with(dtype) if dtype in DTYPES and has_vectors() else None


@cache
def compiled_with(dtype: torch.dtype, *options: str) -> LinearCode | None:
    """The functions for this dtype compiled with these options; None where nothing compiles."""
    return compiled_functions(SOURCE, (*DTYPES[dtype], *options), dtype, LANES)
