"""Linear layers in our own C code: the parts that layers of codes and layers of plain numbers share.

A matrix of either kind is a record in memory that the C code reads; `CompiledLayer` computes all of a decoder layer
but its attention in two calls. Their products give a row the same bits alone and among others, by construction.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.llama.compiled import library
from specdec_lib.models.llama.path_attention import thread_pool

PLAIN = -1.0                                       # for the norm's epsilon: the inputs are not divided by anything
INT64, ADDRESS, FLOAT = ctypes.c_int64, ctypes.c_void_p, ctypes.c_float
MULTIPLY = (ADDRESS, ADDRESS, INT64, FLOAT, ADDRESS, ADDRESS)
FINISH = (*[ADDRESS] * 5, INT64, FLOAT, ADDRESS, ADDRESS)
NORM = (ADDRESS, ADDRESS, INT64, INT64, FLOAT, ADDRESS)


class ThreadsRecord(ctypes.Structure):
    """`Threads` of the C code."""

    _fields_ = (("count", INT64), ("parallel", ADDRESS))


@dataclass(frozen=True)
class LinearCode:
    """The compiled functions, and the dtype of the activations that they read."""

    multiply: Callable[..., int] = field(repr=False)
    finish: Callable[..., int] = field(repr=False)
    norm: Callable[..., None] = field(repr=False)
    library: ctypes.CDLL = field(repr=False)
    dtype: torch.dtype
    tile: int = 1                                  # `finish` takes halves of gate and up of a multiple of so many


class CompiledLinear(Protocol):
    """A matrix [out, into] that the C code reads at `address`."""

    code: LinearCode
    out: int
    into: int
    address: int

    def __call__(self, x: Tensor, eps: float = PLAIN) -> Tensor: ...


class CompiledLayer:
    """A decoder layer without its attention: two calls, each with the norm before its product."""

    def __init__(self, qkv: CompiledLinear, out: CompiledLinear, gate_up: CompiledLinear, down: CompiledLinear,
                 eps: float):
        self.matrices, self.eps, self.code = (qkv, out, gate_up, down), eps, qkv.code
        self.addresses = out.address, gate_up.address, down.address

    def heads(self, x: Tensor) -> Tensor:
        """Queries, keys and values [n, (heads + 2 kv_heads) * d] of x [n, hidden]."""
        return self.matrices[0](x, self.eps)

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """What the layer makes of x [n, hidden] and its attention [n, heads * d]."""
        _, out, _, down = self.matrices
        x, attended = checked(x, down.out, self.code), checked(attended, out.into, self.code)
        y = torch.empty_like(x)
        if self.code.finish(*self.addresses, x.data_ptr(), attended.data_ptr(), len(x), self.eps, y.data_ptr(),
                            ctypes.byref(threads_record(torch.get_num_threads()))):
            raise no_memory()
        return y


def product(layer: CompiledLinear, x: Tensor, eps: float = PLAIN) -> Tensor:
    """y [n, out] of x [n, into] in the layer's dtype; with `eps`, x is divided by its root mean square first."""
    x = checked(x, layer.into, layer.code)
    y = x.new_empty(len(x), layer.out)
    if layer.code.multiply(layer.address, x.data_ptr(), len(x), eps, y.data_ptr(),
                           ctypes.byref(threads_record(torch.get_num_threads()))):
        raise no_memory()
    return y


def reads(code: LinearCode | None, x: Tensor) -> bool:
    """Whether the compiled code reads these rows: on the CPU, in its dtype."""
    return code is not None and x.dtype == code.dtype and x.device.type == "cpu" and x.ndim == 2


def normed(code: LinearCode | None, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x [n, hidden] over its root mean square, times `weight` if any; in compiled code where that reads both."""
    if code is None or not reads(code, x) or weight is not None and weight.dtype != code.dtype:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    code.norm(x.data_ptr(), None if weight is None else weight.contiguous().data_ptr(), *x.shape, eps, y.data_ptr())
    return y


def checked(x: Tensor, into: int, code: LinearCode) -> Tensor:
    """x as the C code reads it; ValueError for other numbers than rows of its dtype on the CPU."""
    if x.dtype != code.dtype or x.ndim != 2 or x.shape[1] != into or x.device.type != "cpu":
        raise ValueError(f"this layer reads rows of {into} numbers in {code.dtype} on the CPU, got {tuple(x.shape)} of"
                         f" {x.dtype} on {x.device}")
    return x.contiguous()


def no_memory() -> MemoryError:
    return MemoryError("there is no memory for the activations of these rows")


def compiled_functions(source: Path, options: Sequence[str], dtype: torch.dtype, tile: int = 1) -> LinearCode | None:
    """The functions of this source, compiled with these options; None where nothing compiles."""
    compiled = library(source, *options)
    if compiled is None:
        return None
    for function, arguments in ((compiled.multiply, MULTIPLY), (compiled.finish, FINISH)):
        function.argtypes, function.restype = arguments, ctypes.c_int
    compiled.norm.argtypes, compiled.norm.restype = NORM, None
    return LinearCode(compiled.multiply, compiled.finish, compiled.norm, compiled, dtype, tile)


@cache
def threads_record(count: int) -> ThreadsRecord:
    """A `Threads` of so many."""
    return ThreadsRecord(count, thread_pool())
