"""Attention in our own C code (`path_attention.c`): each row over the columns of its own path, where they lie.

One call rotates queries and keys, writes keys and values into the cache, and attends. Bits do not depend on other rows
by construction, so prompts, chains and trees of any size go through it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from specdec_lib.models.llama.compiled import ON_ARM, library
from specdec_lib.models.llama.invariant_attention import Parents, is_chain, paths_of

SOURCE = Path(__file__).with_suffix(".c")
STEP, MOST = 32, 512                               # head sizes are multiples of this, up to that
INT32, INT64, ADDRESS = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
DTYPES = {torch.bfloat16: (), torch.float32: ("-DSINGLE",)}     # and the compiler's option
VECTORS = "AVX2", "AVX512"                         # the C code is written for these, and for those of every 64-bit ARM
Paths = tuple[ctypes.Array, ctypes.Array]          # where the path of each node ends, and the paths
COUNTS = ("rows", "first", "context", "heads", "kv_heads", "threads")
ADDRESSES = ("ends", "nodes", "cos", "sin", "pool")


class RowsRecord(ctypes.Structure):
    """`Rows` of the C code."""

    _fields_ = [*((name, INT64) for name in COUNTS), *((name, ADDRESS) for name in ADDRESSES)]


@dataclass(frozen=True)
class PathAttention:
    """The compiled attention for models with these heads."""

    attend: Callable[..., int] = field(repr=False)
    pool: int | None                               # the address of torch's GOMP_parallel; None = a single thread
    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype = torch.bfloat16

    def rows(self, where: slice, context: int, parents: Parents, cos: Tensor, sin: Tensor) -> PathRows:
        """The rows of the cache to be fed; those from `context` on are nodes with these parents."""
        tree = where.stop > context and not is_chain(parents)
        return PathRows(self, where, context, flat_paths(parents) if tree else None, cos, sin)

    def block(self, where: slice, context: int, cos: Tensor, sin: Tensor) -> PathRows:
        """The same where all rows from `context` on see each other, so all of them are fed."""
        count = where.stop - context               # a single node sees what a row of a text sees
        return PathRows(self, where, context, every_node(count) if count > 1 else None, cos, sin)

    def room(self, rows: int, nodes: int) -> int:
        """The cache columns that are needed for so many rows."""
        return rows


class PathRows:
    """The rows of one forward, the same for every layer: called with a layer's tensors, it returns their attention."""

    def __init__(self, by: PathAttention, where: slice, context: int, paths: Paths | None, cos: Tensor, sin: Tensor):
        ends, nodes = (None, None) if paths is None else map(ctypes.addressof, paths)
        self.attend, self.size, self.given = by.attend, by.heads * by.head_dim, (by, where, context, paths)
        self.angles = cos, sin                     # whose memory the record points to
        self.record = RowsRecord(where.stop - where.start, where.start, context, by.heads, by.kv_heads,
                                 torch.get_num_threads(), ends, nodes, cos.data_ptr(), sin.data_ptr(), by.pool)
        self.rows = ctypes.byref(self.record)

    @cached_property
    def still(self) -> PathRows:
        """The same rows for a layer that rotates nothing: all angles are 0."""
        cos, sin = self.angles
        return PathRows(*self.given, torch.ones_like(cos), torch.zeros_like(sin))

    def __call__(self, qkv: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attention [rows, heads * d]. Rotates the queries in `qkv` [rows, heads + 2 kv_heads, d] in place.

        Writes the rows' keys and values into the cache's [kv_heads, columns, d]; MemoryError without memory.
        """
        out = qkv.new_empty(len(qkv), self.size)
        places = qkv.data_ptr(), keys.data_ptr(), values.data_ptr(), keys.stride(0), out.data_ptr()
        if self.attend(self.rows, *places):
            raise MemoryError("there is no memory for the scores of these rows")
        return out


@lru_cache(32)
def every_node(count: int) -> Paths:
    """All of so many nodes, as the path of each."""
    ends, nodes = range(0, count * count + 1, count), list(range(count)) * count
    return (INT32 * len(ends))(*ends), (INT32 * len(nodes))(*nodes)


@lru_cache(256)
def flat_paths(parents: Parents) -> Paths:
    """Where the path of each node ends, from 0 on, and the paths, one behind the other."""
    ends, nodes = [0], []
    for path in paths_of(parents):
        nodes += path
        ends.append(len(nodes))
    return (INT32 * len(ends))(*ends), (INT32 * len(nodes))(*nodes)


def path_attention(heads: int, kv_heads: int, head_dim: int,
                   dtype: torch.dtype = torch.bfloat16) -> PathAttention | None:
    """The compiled attention; None where vector instructions are missing, nothing compiles, or the head size is odd."""
    if dtype not in DTYPES or head_dim % STEP or head_dim > MOST or not has_vectors():
        return None
    attend = compiled_for(head_dim, dtype)
    return attend and PathAttention(attend, thread_pool(), heads, kv_heads, head_dim, dtype)


def has_vectors() -> bool:
    """Whether the processor has vector instructions that the C code is written for."""
    return ON_ARM or torch.backends.cpu.get_cpu_capability().startswith(VECTORS)


@cache
def compiled_for(head_dim: int, dtype: torch.dtype) -> Callable[..., int] | None:
    """The C function for this head size, compiled if the cache folder does not hold it; None where that fails."""
    compiled = library(SOURCE, f"-DHEAD={head_dim}", *DTYPES[dtype])
    if compiled is None:
        return None
    compiled.attend.argtypes, compiled.attend.restype = (*[ADDRESS] * 4, INT64, ADDRESS), ctypes.c_int
    return compiled.attend


@cache
def thread_pool() -> int | None:
    """The address of the function that runs something in torch's own threads; a second pool would fight with them."""
    for ours in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):    # .so, or .dylib on macOS
        with suppress(OSError, AttributeError):
            return ctypes.cast(ctypes.CDLL(str(ours)).GOMP_parallel, ADDRESS).value
    return None
