"""Several decoder layers in one call of our own C code (`compiled_layers.c`), where all their parts are compiled.

A forward of one row spends a tenth of its time between its layers if each part of each layer is called from Python.
Rows of several sequences go through the products together, and attend each over their own cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specdec_lib.models.llama.compiled import library
from specdec_lib.models.llama.compiled_linear import (
    ADDRESS,
    FLOAT,
    INT64,
    CompiledLayer,
    checked,
    no_memory,
    threads_record,
)
from specdec_lib.models.llama.path_attention import PathRows

SOURCE = Path(__file__).with_suffix(".c")
THROUGH = (ADDRESS, ADDRESS, INT64, INT64, ADDRESS, INT64, INT64, ADDRESS, ADDRESS)


class CodeRecord(ctypes.Structure):
    """`Code` of the C code."""

    _fields_ = (("multiply", ADDRESS), ("finish", ADDRESS), ("threads", ADDRESS), ("eps", FLOAT))


class PlacesRecord(ctypes.Structure):
    """`Rows` of the C code."""

    _fields_ = (("attend", ADDRESS), ("about", ADDRESS), ("count", INT64), ("stride", INT64), ("next", INT64),
                ("keys", ADDRESS), ("values", ADDRESS), ("qkv", ADDRESS), ("attended", ADDRESS), ("begin", INT64),
                ("taps", ADDRESS))


class TapsRecord(ctypes.Structure):
    """`Taps` of the C code."""

    _fields_ = (("count", INT64), ("levels", ADDRESS), ("to", ADDRESS), ("size", INT64), ("apart", INT64))


@dataclass(frozen=True)
class KeptOutputs:
    """Where the outputs of some layers are kept: to [rows, len(levels), hidden] holds what is read at each level."""

    levels: tuple[int, ...]
    to: Tensor


class CachedRows(NamedTuple):
    """The rows of one sequence in a forward, and where their keys and values [layers, 2, kv_heads, columns, d] go."""

    kv: Tensor
    paths: PathRows
    kept: KeptOutputs | None = None


class CompiledLayers:
    """The layers of a model without norms of heads, all in the same compiled code."""

    def __init__(self, layers: Sequence[CompiledLayer], through: Callable[..., int]):
        first = layers[0]
        self.layers, self.through, self.code, self.eps = tuple(layers), through, first.code, first.eps
        qkv, _, _, down = first.matrices
        self.hidden, self.width = down.out, qkv.out
        self.functions = tuple(map(address_of, (first.code.multiply, first.code.finish)))
        self.matrices = (ADDRESS * (4 * len(layers)))(*(one.address for layer in layers for one in layer.matrices))

    def __call__(self, x: Tensor, parts: Sequence[CachedRows], first: int, last: int) -> Tensor:
        """What layers `first` to `last` make of x [rows, hidden]: the rows of these sequences, one behind the other.

        Fills their caches; outputs of layers in between that are to be kept are written as they are made. MemoryError
        without memory.
        """
        x = checked(x, self.hidden, self.code)
        if last <= first:
            return x
        to = torch.empty_like(x)
        x = x if last == first + 1 else x.clone()  # it is written to from the second layer on
        qkv, attended = x.new_empty(len(x), self.width), x.new_empty(len(x), parts[0].paths.size)
        taps = [None if part.kept is None else taps_record(part.kept) for part in parts]
        places, at = (PlacesRecord * len(parts))(), 0
        for place, (part, tapped) in enumerate(zip(parts, taps, strict=True)):
            begin = at * x.stride(0) * x.element_size()
            places[place] = place_of(part, first, qkv[at:], attended[at:], begin, tapped)
            at += part.paths.record.rows
        code = CodeRecord(*self.functions, ctypes.addressof(threads_record(torch.get_num_threads())), self.eps)
        if self.through(ctypes.addressof(code), ctypes.addressof(self.matrices), first, last - first,
                        ctypes.addressof(places), len(parts), len(x), x.data_ptr(), to.data_ptr()):
            raise no_memory()
        return to if (last - first) % 2 else x


def place_of(part: CachedRows, first: int, qkv: Tensor, attended: Tensor, begin: int,
             taps: TapsRecord | None) -> PlacesRecord:
    """The rows of a sequence for the C code, from layer `first` on; `begin` bytes of x lie before them."""
    kv, paths = part.kv, part.paths
    size, (apart, half, stride, *_) = kv.element_size(), kv.stride()
    keys = kv.data_ptr() + first * apart * size
    return PlacesRecord(address_of(paths.attend), ctypes.addressof(paths.record), paths.record.rows, stride,
                        apart * size, keys, keys + half * size, qkv.data_ptr(), attended.data_ptr(), begin,
                        taps and ctypes.addressof(taps))


def compiled_layers(layers: Sequence[CompiledLayer | None]) -> CompiledLayers | None:
    """These layers in one call; None where one is not compiled, they differ in their code, or nothing compiles."""
    there = [layer for layer in layers if layer is not None]
    codes = {id(matrix.code) for layer in there for matrix in layer.matrices}
    through = compiled_through() if there and len(there) == len(layers) and len(codes) == 1 else None
    return through and CompiledLayers(there, through)


def taps_record(kept: KeptOutputs) -> TapsRecord:
    """Where these outputs are kept, for the C code."""
    size, (row, place, _) = kept.to.element_size(), kept.to.stride()
    assert place == kept.to.shape[2]               # outputs side by side, as the cache has them
    return TapsRecord(len(kept.levels), ctypes.addressof(whole_levels(kept.levels)), kept.to.data_ptr(), place * size,
                      row * size)


@cache
def whole_levels(levels: tuple[int, ...]) -> ctypes.Array:
    """These numbers for the C code."""
    return (INT64 * len(levels))(*levels)


@cache
def compiled_through() -> Callable[..., int] | None:
    """The C function; None where nothing compiles."""
    compiled = library(SOURCE)
    if compiled is None:
        return None
    compiled.through.argtypes, compiled.through.restype = THROUGH, ctypes.c_int
    return compiled.through


def address_of(function: Any) -> int | None:
    """Where a C function lies."""
    return ctypes.cast(function, ADDRESS).value
