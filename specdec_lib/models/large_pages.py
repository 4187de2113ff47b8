"""Memory in large pages for weights that every forward reads once: fewer addresses to look up, so they are read sooner.

Linux gives such memory where its setting `transparent_hugepage` allows it to those who ask (`madvise`); elsewhere the
pages are usual ones. Many matrices share a block, since a large page (2 MB) is larger than most of them.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence
from contextlib import suppress
from math import prod

import torch
from torch import Tensor

PAGE, BLOCK = 2 << 20, 16 << 20                    # bytes of a large page, and of a block
SMALL = 1 << 16                                    # bytes that are not worth it
LINE = 64                                          # bytes that a tensor's address is a multiple of
LOCK = threading.Lock()
rest = torch.empty(0, dtype=torch.uint8)           # the unused end of the last block; tensors keep their block alive


def in_large_pages(size: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor on the CPU, in large pages where the system has them and the tensor is not small."""
    global rest
    room = prod(size) * dtype.itemsize
    if room < SMALL or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(*size, dtype=dtype)
    with LOCK:
        if len(rest) < room:
            rest = new_block(max(room, BLOCK))
        taken, rest = rest[:room], rest[-(-room // LINE) * LINE:]
    return taken.view(dtype).view(*size)


def copied(tensor: Tensor) -> Tensor:
    """The same numbers in such memory."""
    return in_large_pages(tensor.shape, tensor.dtype).copy_(tensor)


def new_block(room: int) -> Tensor:
    """At least `room` bytes that begin with a large page."""
    memory = mmap.mmap(-1, room + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):                        # a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    block = torch.frombuffer(memory, dtype=torch.uint8)
    return block[-block.data_ptr() % PAGE:]
