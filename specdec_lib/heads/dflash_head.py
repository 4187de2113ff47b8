"""A published block drafter in the loop: its keys and values of committed tokens are cached, its blocks are not.

It answers as `BlockHead` (`block_diffusion.py`) does. Its slots are independent of each other, so what follows a token
does not depend on it, and the confidence of a token is its own probability. Beside a target of captured steps a block
is captured too (`captured_dflash.py`), and the cache goes on to the next decode. Sources: see `public_block.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec_lib.heads.base import Target, block_length, new_features
from specdec_lib.heads.block_walk import Block, Slots, walked
from specdec_lib.heads.captured_block import BlockMemory
from specdec_lib.heads.captured_dflash import told_of
from specdec_lib.heads.captured_draft import width_of
from specdec_lib.heads.memory_lease import MemoryLease
from specdec_lib.heads.public_block import DFlashNetwork
from specdec_lib.linked_slots import UnlinkedSlots
from specdec_lib.models.device import to_host
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.forward import block_view, columns, view_of
from specdec_lib.models.llama.kernels import compiled_attention
from specdec_lib.models.llama.row_stats import packed_stats
from specdec_lib.types import Draft, Lattice

BEST = 2                                           # candidates of a slot that a chain needs


class DFlashHead:
    """`head(tokens, depth)` returns a `Block`; `forwards` counts blocks, `fed` committed tokens read.

    The target keeps the hidden states of the `taps` since before the prompt was fed (`base.tap_levels`). A call reads
    what is missing, however many rounds passed since the last one.
    """

    def __init__(self, network: DFlashNetwork, taps: tuple[int, ...], target: Target, block: int | None = None):
        self.block = block_length(network.block if block is None else block, target)
        self.levels, self.target, self.network, self.shape = taps, target, network, network.shape
        self.dtype, device = network.embedding.dtype, network.embedding.device
        self.ids = torch.arange(len(network.embedding), device=device)
        layers, static = len(network.layers), isinstance(target, Transformer) and target.static
        self.lease = (MemoryLease(network.free, lambda: BlockMemory(self.shape, layers, network.embedding))
                      if static else None)
        self.cache = (KVCache(self.shape, layers, self.dtype, device) if self.lease is None
                      else self.lease.held.cache)
        self.attention = compiled_attention(self.shape, self.dtype, device)
        self.rope = (None if self.lease is None else self.lease.held.rope) or self.angles()
        self.forwards = self.fed = 0

    def __call__(self, tokens: tuple[int, ...], depth: int) -> Block:
        """The block after these tokens, its chain `depth` slots long. ValueError for an impossible depth."""
        slots = self.slots(tokens, depth, BEST)
        told = to_host(slots.told)
        first, second = (told[:, :BEST] - told[:, -2:-1]).exp().unbind(1)
        chain = torch.stack((told[:, BEST], first, second, told[:, -1], first), 1)
        return walked(slots, chain.tolist())

    def lattice(self, tokens: tuple[int, ...], depth: int, top: int) -> Lattice:
        """The `top` candidates of each slot of the same block. ValueError for an impossible depth."""
        return self.slots(tokens, depth, top).lattice

    def links(self, tokens: tuple[int, ...], depth: int, top: int) -> UnlinkedSlots:
        """The same candidates, which do not depend on those of the slot before."""
        return UnlinkedSlots(self.lattice(tokens, depth, top))

    def slots(self, tokens: tuple[int, ...], depth: int, top: int) -> Slots:
        """The `top` candidates of the first `depth` slots; ValueError for an impossible depth."""
        if not 1 <= depth <= self.block:
            raise ValueError(f"a block of {self.block} drafts 1 to {self.block} tokens, {depth} were asked for")
        with torch.inference_mode():
            return Slots(self.told(tokens, depth, top), self.ids, torch.promote_types(self.dtype, torch.float32))

    def told(self, tokens: tuple[int, ...], depth: int, top: int) -> Tensor:
        """The packed statistics [depth, 2 top + 2] of the first slots."""
        if self.lease is not None:
            taps, start = self.read(tokens, width_of(self.block))
            self.forwards += 1
            return told_of(self.lease.held, self, tokens[-1], taps, start, top)[:depth]
        self.read(tokens)
        return packed_stats(self.network.head(self.rows(tokens)[1:1 + depth]), None, top)

    def read(self, tokens: tuple[int, ...], most: int = 0) -> tuple[Tensor, int]:
        """Computes missing keys and values of the tokens before the last, all but the last `most`.

        Returns the target's hidden states [rows, taps, hidden] of those that are left, and the first of them.
        """
        stop = len(tokens) - 1
        left = self.network.embedding.new_zeros(0, len(self.levels), self.shape.hidden), stop
        self.cache.align(tokens[:-1], Draft())
        for at, streams in new_features(self.target, tokens, len(self.cache.rows), self.levels):
            taps, end = streams.to(self.dtype), at + len(streams)
            here = max(0, len(taps) - most) if end == stop else len(taps)
            if here:
                self.keep(taps[:here], at)
            left = taps[here:], at + here
            self.cache.rows.depth += [1] * len(taps)
            self.fed += len(taps)
        return left

    def keep(self, taps: Tensor, start: int) -> None:
        """Writes the rows from `start` on, from their hidden states `taps` [rows, taps, hidden]."""
        where = slice(start, start + len(taps))
        self.reserve(where.stop)
        cos, sin = (table[where] for table in self.rope)
        self.cache.kv[:, 0, :, where], self.cache.kv[:, 1, :, where] = self.network.injected(
            self.network.feature(taps), cos, sin)

    def rows(self, tokens: tuple[int, ...]) -> Tensor:
        """Normed hidden states [1 + block, hidden] of the last token and the masks behind it; they are not kept."""
        start = len(tokens) - 1
        where = slice(start, start + 1 + self.block)
        self.reserve(where.stop)
        cos, sin = (table[where] for table in self.rope)
        view = (view_of(where, cos, sin, None, self.shape.group, self.cache.capacity) if self.attention is None
                else block_view(self.attention, where, start, cos, sin))
        anchor = self.network.embedding[tokens[-1]][None]
        self.forwards += 1
        return self.network.filled(anchor, self.block, columns(self.cache.kv, view), view)

    def reserve(self, rows: int) -> None:
        """Makes room in the cache, and computes the angles for it."""
        self.cache.reserve(rows)
        if len(self.rope[0]) < self.cache.capacity:
            self.rope = self.angles()

    def angles(self) -> tuple[Tensor, Tensor]:
        """The rotary table of the whole cache, in single precision for compiled attention."""
        dtype = self.dtype if self.attention is None else torch.float32
        return rope_table(self.shape, self.cache.capacity, dtype, self.ids.device)
