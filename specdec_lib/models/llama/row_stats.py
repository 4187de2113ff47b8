"""What policies and rules ask of every row of logits, computed on the device and moved to the host at once.

On a CPU they are computed in our own C code (`row_stats.c`), in two readings of a row.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from specdec_lib.models.device import to_host
from specdec_lib.models.llama.compiled import library
from specdec_lib.models.llama.compiled_linear import ADDRESS, INT64, threads_record
from specdec_lib.scores import KEPT, ListedRowStats
from specdec_lib.topk import top_k

TOP = KEPT                                         # tokens of each row that are kept
MOST = 64                                          # that the C code keeps
SOURCE = Path(__file__).with_suffix(".c")
OPTIONS = {torch.float32: (), torch.bfloat16: ("-DHALF",)}
ARGUMENTS = (ADDRESS, INT64, INT64, INT64, ADDRESS, INT64, ADDRESS, ADDRESS)


def tells(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a model takes the statistics of its logits at once: on a device, and on a CPU where they cost little."""
    return device.type != "cpu" or compiled_stats(dtype) is not None


def row_stats_of(logits: Tensor, ids: Tensor | None, k: int = TOP) -> ListedRowStats:
    """Top k, log-sum-exp and entropy of every row, moved to the host in one transfer."""
    return unpacked(to_host(packed_stats(logits, ids, k)), torch.promote_types(logits.dtype, torch.float32))


def packed_stats(logits: Tensor, ids: Tensor | None, k: int = TOP) -> Tensor:
    """Top k logits, their tokens, log-sum-exp and entropy [rows, 2k + 2] in double precision, on the device.

    `ids` [V] names the token of each column, [rows, V] where rows have columns of their own; None: its number.
    The first of equal logits comes first, whatever the number of rows.
    """
    run = compiled_stats(logits.dtype) if logits.device.type == "cpu" else None
    if run is not None and 0 < k <= MOST and logits.stride(-1) == 1 and (ids is None or ids.dim() == 1):
        return in_c(run, logits, ids, min(k, logits.shape[1]))
    value, column = top_k(logits, min(k, logits.shape[1]))
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))         # sums over V in 16 bits would be rough
    lse = torch.logsumexp(wide, -1)
    entropy = lse - ((wide - lse[:, None]).exp() * wide).sum(-1)
    if ids is not None:
        column = ids.to(column.device)[column] if ids.dim() == 1 else ids.gather(1, column)
    return torch.cat((value.double(), column.double(), lse[:, None].double(), entropy[:, None].double()), 1)


def in_c(run: Callable[..., None], logits: Tensor, ids: Tensor | None, k: int) -> Tensor:
    """`packed_stats` of rows on the CPU."""
    out = torch.empty(len(logits), 2 * k + 2, dtype=torch.float64)
    run(logits.data_ptr(), *logits.shape, logits.stride(0), None if ids is None else ids.data_ptr(), k, out.data_ptr(),
        ctypes.byref(threads_record(torch.get_num_threads())))
    return out


@cache
def compiled_stats(dtype: torch.dtype) -> Callable[..., None] | None:
    """The C function for logits of this dtype; None for others, and where nothing compiles."""
    compiled = library(SOURCE, *OPTIONS[dtype]) if dtype in OPTIONS else None
    if compiled is None:
        return None
    compiled.row_stats.argtypes, compiled.row_stats.restype = ARGUMENTS, None
    return compiled.row_stats


def unpacked(packed: Tensor, dtype: torch.dtype) -> ListedRowStats:
    """Statistics from what `packed_stats` made of logits in this dtype, once it is on the host."""
    rows = packed.tolist()
    k = packed.shape[1] // 2 - 1
    ids = [[int(token) for token in row[k:-2]] for row in rows]
    tops, lse = (ids, [row[:k] for row in rows]), tuple(row[-2] for row in rows)
    entropy = tuple(max(row[-1], 0.0) for row in rows)         # which keeps NaN
    return ListedRowStats(tops, dtype, tuple(range(len(rows))), lse, entropy)


def split(stats: ListedRowStats, counts: Sequence[int]) -> list[ListedRowStats]:
    """The statistics of so many rows each, in order; rows are counted from 0 in each."""
    ends = [*accumulate(counts)]
    return [stats.part(slice(end - count, end)) for count, end in zip(counts, ends, strict=True)]
