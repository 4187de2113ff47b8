"""Recording work into a CUDA graph, whatever other threads and other graphs do meanwhile.

A capture is ended by what its own thread must not do, and by a wait for the whole device in any thread. cuBLAS keeps a
workspace for each thread and stream, so graphs that one thread captures on one stream would write to the same one when
they run at the same time: each graph here takes a workspace of its own, from its own memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specdec_lib.collection import without_collection
from specdec_lib.models.llama.cache import KVCache

ALONE = "thread_local"                             # what other threads do meanwhile does not end a capture
CAPTURING = threading.Lock()                       # a drafter in a thread may capture as well, see schedules/workers.py
LOST: list[Any] = []                               # graphs whose capture failed: torch's allocator still refers to them
COUNT = [0]                                        # captures of this process


class CaptureStreams(NamedTuple):
    """The streams of all captures on a device."""

    first: Any                                     # runs the work once before it is recorded
    recorded: Any


@cache
def capture_streams(device: torch.device) -> CaptureStreams:
    """Made once: torch has 32 streams and hands them out in turn, so new ones would be a drafter's at some time."""
    return CaptureStreams(torch.cuda.Stream(device), torch.cuda.Stream(device))


def captures() -> int:
    """How many graphs this process has captured, which takes tens of milliseconds each."""
    return COUNT[0]


def captured(compute: Callable[[], tuple[Tensor, ...]], cache: KVCache) -> tuple[Any, tuple[Tensor, ...]]:
    """A graph of this work and where it leaves its results.

    The graphs of one cache share their memory, and those of another have their own: they may run at the same time.
    Where the work cannot be captured, its error is raised, and the graphs captured later use other memory.
    """
    device = cache.kv.device
    with CAPTURING, without_collection():          # a graph that is freed meanwhile ends the capture
        here, streams = torch.cuda.current_stream(device), capture_streams(device)
        streams.first.wait_stream(here)
        with torch.cuda.stream(streams.first):     # a first run outside the graph initialises the libraries
            compute()
        here.wait_stream(streams.first)
        try:
            if cache.first_graph is None:
                cache.first_graph = recorded(lambda: first_work(device), streams, None)[0]
            found = recorded(compute, streams, cache.first_graph.pool())
        except BaseException:
            torch.cuda.set_stream(here)            # torch leaves its own set where a capture fails
            cache.first_graph = None               # its memory counts as being recorded for ever
            raise
        COUNT[0] += 1
        return found


def recorded(compute: Callable[[], tuple[Tensor, ...]], streams: CaptureStreams, pool: Any
             ) -> tuple[Any, tuple[Tensor, ...]]:
    """The graph of this work in this pool of memory, or one of its own for None, and its results."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, pool, streams.recorded, ALONE):
            torch._C._cuda_clearCublasWorkspaces()               # the graph takes its own
            out = compute()
            torch._C._cuda_clearCublasWorkspaces()               # and the next graph another one
    except BaseException:
        LOST.append(graph)
        raise
    return graph, out


def first_work(device: torch.device) -> tuple[Tensor, ...]:
    """The work of a cache's first graph, which is kept when all others are dropped.

    Their memory goes with the last graph of a pool and cannot be had again.
    """
    return (torch.zeros(1, device=device).add(1),)
