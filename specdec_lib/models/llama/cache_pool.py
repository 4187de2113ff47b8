"""Caches that go from decode to decode with their captured steps, so that no prompt captures anything anew.

A decode leases one; when the last model that uses the lease is gone, the next decode on the same weights may have it.
The free ones lie on the weights (`LlamaWeights.free`) and go with them.
"""

from __future__ import annotations

import gc

import torch
from torch import Tensor

from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.cache_rows import CacheRows
from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.cuda_graph import CapturedStep, CapturedWork, Head, columns_for, room_for, window
from specdec_lib.models.llama.weights import LlamaWeights

ROWS = 2048                                        # of a new cache: most prompts never make it grow


def earlier_nodes(rows: CacheRows, start: int) -> int:
    """How many nodes of the draft lie before this row."""
    return max(0, start - len(rows.tokens))


class StepCache:
    """A cache, its rotary table, and the steps and chains (`greedy_chain.py`) that were captured on both."""

    def __init__(self, weights: LlamaWeights, taps: tuple[int, ...]):
        if weights.device.type == "cuda":
            torch.backends.cuda.enable_cudnn_sdp(False)          # it plans anew for every length of a prompt
        capacity = max(512, min(ROWS, 1 << (weights.shape.context - 1).bit_length()))
        self.cache = KVCache(weights.shape, len(weights.layers), weights.dtype, weights.device, taps, capacity)
        self.steps: dict[tuple, CapturedStep] = {}
        self.chains: dict[tuple, CapturedWork] = {}
        self.last: CapturedStep | None = None      # that ran
        self.rope = rope_table(weights.shape, capacity, weights.dtype, weights.device)

    def reserve(self, weights: LlamaWeights, rows: int, half_way: bool) -> None:
        """Makes room; a cache that grew lies elsewhere, so what was captured on it is dropped."""
        before = self.cache.capacity
        self.cache.reserve(rows, half_way)
        if self.cache.capacity != before:
            self.steps.clear()
            self.chains.clear()
            self.rope = rope_table(weights.shape, self.cache.capacity, weights.dtype, weights.device)

    def run(self, weights: LlamaWeights, width: int, stop: int, depth: int, head: Head | None, both_ways: bool,
            products: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Takes the rows before `stop` through a step of this width: hidden states, logits, packed statistics."""
        rows, start = self.cache.rows, len(self.cache.rows)
        earlier = earlier_nodes(rows, start)
        self.reserve(weights, room_for(start, width), depth < len(weights.layers))
        columns = columns_for(room_for(start - earlier, width))
        key = width, columns, self.cache.taps, depth, id(head), products
        if key not in self.steps:
            self.steps[key] = CapturedStep(width, columns, weights, self.cache, self.rope, depth, head, products)
        ahead = len(rows.tokens)
        committed, parents = max(0, min(stop, ahead) - start), rows.draft.parents[:max(0, stop - ahead)]
        step = self.last = self.steps[key]
        with torch.inference_mode():
            return step(rows.flat(start, stop), [rows.position(row) for row in range(start, stop)], start,
                        earlier, window(parents, committed, stop - start, both_ways, width))


class Lease:
    """Holds a `StepCache` for as long as a model uses it."""

    def __init__(self, weights: LlamaWeights, taps: tuple[int, ...]):
        if not weights.free:
            gc.collect()                           # what only a cycle holds is free, too, and costs less than a capture
        self.free = weights.free
        self.held = weights.free.pop() if weights.free else StepCache(weights, taps)
        self.held.cache.tap(taps)                  # empty, whoever had it before
        self.held.cache.hidden = None

    def __del__(self):
        if hasattr(self, "held"):
            self.free.append(self.held)
