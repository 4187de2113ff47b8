"""The key-value cache that aligns itself: one preallocated tensor, and a record of its rows (`cache_rows.py`).

One copy for all layers moves accepted rows behind the context. Knows nothing about weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specdec_lib.models.device import to_device, wait_for_stream
from specdec_lib.models.llama.cache_rows import CacheRows
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.types import Draft


class KVCache:
    """Keys and values [layers, 2, kv_heads, capacity, head_dim] of `rows`.

    Where a row has not passed the whole model, `hidden[row]` is its hidden state after its last layer. `taps` are the
    layers whose hidden states `features` keeps [capacity, taps, hidden].
    """

    def __init__(self, shape: LlamaConfig, layers: int, dtype: torch.dtype, device, taps: tuple[int, ...] = (),
                 capacity: int = 512):
        self.kv = torch.zeros(layers, 2, shape.kv_heads, capacity, shape.head_dim, dtype=dtype, device=device)
        self.size, self.rows = shape.hidden, CacheRows()
        self.hidden: Tensor | None = None
        self.features: Tensor | None = None
        self.kept: dict[tuple[int, ...], Tensor] = {}            # features by taps: captured steps know their address
        self.first_graph: Any = None               # keeps the memory of the CUDA graphs over this cache
        self.tap(taps)

    @property
    def capacity(self) -> int:
        return self.kv.shape[3]

    def stream(self, *inner: int) -> Tensor:
        return torch.zeros(self.capacity, *inner, self.size, dtype=self.kv.dtype, device=self.kv.device)

    def tap(self, taps: tuple[int, ...]) -> None:
        """Keeps the hidden states of these layers from now on; drops every row, since it lacks them."""
        self.taps, self.rows = tuple(taps), CacheRows()
        if taps and self.taps not in self.kept:
            self.kept[self.taps] = self.stream(len(taps))
        self.features = self.kept[self.taps] if taps else None

    def reserve(self, rows: int, half_way: bool = False) -> None:
        """Makes room for this many rows by doubling; `half_way`: also for hidden states of rows that exit early."""
        while self.capacity < rows:
            self.kv = doubled(self.kv, 3)
            self.hidden = None if self.hidden is None else doubled(self.hidden, 0)
            self.features = None if self.features is None else doubled(self.features, 0)
            self.kept = {} if self.features is None else {self.taps: self.features}
        if half_way and self.hidden is None:
            self.hidden = self.stream()

    def align(self, tokens: tuple[int, ...], draft: Draft) -> None:
        """Keeps the leading rows of tokens + draft that are cached, and drops all others."""
        first, sources = self.rows.align(tokens, draft)
        if sources:
            to, source = slice(first, first + len(sources)), to_device(sources, self.kv.device)
            self.kv[:, :, :, to] = self.kv[:, :, :, source]
            for stream in (self.hidden, self.features):
                if stream is not None:
                    stream[to] = stream[source]

    def fed(self, tokens: tuple[int, ...], depth: int) -> int:
        """How many leading tokens are cached at least `depth` layers deep; accepted nodes of the last draft count."""
        if self.rows.follows(tokens):
            self.align(tokens, Draft())
        return self.rows.fed(tokens, depth)


def doubled(tensor: Tensor, dim: int) -> Tensor:
    """The tensor followed by as many zeros along `dim`."""
    out = torch.cat((tensor, torch.zeros_like(tensor)), dim)
    if tensor.is_cuda:                             # another thread may get its memory as soon as it is dropped
        wait_for_stream()
    return out
