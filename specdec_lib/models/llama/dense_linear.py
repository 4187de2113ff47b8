"""Linear layers of plain numbers in our own C code (`dense_linear.c`), in bfloat16 and float32 on a CPU.

A decode feeds a few rows at a time, so the time is that of reading the weights once. On two cores of an AMD EPYC the
linear layers of SmolLM2-135M in bfloat16 take 10 ms for one row and 11 for eight, with oneDNN's kernels 18 and 14. With
AMX they take 9 ms for one row and 10 for sixteen on two cores of an Intel Xeon, without it 10 and 28.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

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


class DenseRecord(ctypes.Structure):
    """`Matrix` of the C code."""

    _fields_ = (("out", INT64), ("in", INT64), ("weights", ADDRESS), ("bias", ADDRESS))


class DenseLinear:
    """y = x W^T + b for x [n, in], with W [out, in] in the dtype of x. Makes a copy of W in tiles."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, code: LinearCode | None = None):
        found = code or dense_code(weight.dtype)
        assert found is not None, f"there is no compiled code for {weight.dtype}: ask `dense_code` first"
        self.code, (self.out, self.into) = found, weight.shape
        self.tiles, self.bias = in_tiles(weight), None if bias is None else bias.float().contiguous()
        self.record = DenseRecord(self.out, self.into, self.tiles.data_ptr(),
                                   None if self.bias is None else self.bias.data_ptr())
        self.address = ctypes.addressof(self.record)

    def __call__(self, x: Tensor, eps: float = PLAIN) -> Tensor:
        """y [n, out]; with `eps`, x is divided by its root mean square first."""
        return product(self, x, eps)

    def dense(self) -> Tensor:
        """The plain weight [out, in]."""
        return self.tiles.permute(0, 2, 1, 3).reshape(len(self.tiles) * LANES, -1)[:self.out, :self.into].contiguous()

    def rows(self, ids: Tensor) -> DenseLinear:
        """The same layer with these output rows alone."""
        return DenseLinear(self.dense()[ids], None if self.bias is None else self.bias[ids], self.code)


def in_tiles(weight: Tensor) -> Tensor:
    """W [out, in] as [tiles, words, LANES, numbers of a word], with zeros behind the last output and input."""
    out, into = weight.shape
    numbers = 4 // weight.element_size()
    padded = F.pad(weight, (0, -into % (numbers * LANES), 0, -out % LANES))
    return padded.view(-1, LANES, padded.shape[1] // numbers, numbers).permute(0, 2, 1, 3).contiguous()


def dense_code(dtype: torch.dtype) -> LinearCode | None:
    """The compiled functions for weights of this dtype; None where nothing compiles."""
    return compiled_with(dtype) if dtype in DTYPES and has_vectors() else None


@cache
def compiled_with(dtype: torch.dtype, *options: str) -> LinearCode | None:
    """The functions for this dtype compiled with these options; None where nothing compiles."""
    return compiled_functions(SOURCE, (*DTYPES[dtype], *options), dtype, LANES)
