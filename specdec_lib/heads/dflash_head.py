"""A published block drafter in the loop: its keys and values of committed tokens are cached, its blocks are not.

It answers as `BlockHead` (`block_diffusion.py`) does. Its slots are independent of each other, so what follows a token
does not depend on it, and the confidence of a token is its own probability. Sources: see `public_block.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec_lib.heads.base import Target, new_features
from specdec_lib.heads.block_walk import Block, Slots, walked
from specdec_lib.heads.public_block import DFlashNetwork
from specdec_lib.linked_slots import UnlinkedSlots
from specdec_lib.models.device import to_host
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.forward import block_view, columns, view_of
from specdec_lib.models.llama.kernels import compiled_attention
from specdec_lib.models.llama.row_stats import packed_stats
from specdec_lib.types import Draft, Lattice, Refusal

BEST = 2                                           # candidates of a slot that a chain needs


class DFlashHead:
    """`head(tokens, depth)` returns a `Block`; `forwards` counts blocks, `fed` committed tokens read.

    The target keeps the hidden states of the `taps` since before the prompt was fed (`base.tap_levels`). A call reads
    what is missing, however many rounds passed since the last one.
    """

    def __init__(self, network: DFlashNetwork, taps: tuple[int, ...], target: Target, block: int | None = None):
        self.block = network.block if block is None else block
        if self.block < 1:
            raise Refusal(f"a block has at least one slot, got {self.block}")
        self.levels, self.target, self.network, self.shape = taps, target, network, network.shape
        self.dtype, device = network.embedding.dtype, network.embedding.device
        self.ids = torch.arange(len(network.embedding), device=device)
        self.cache = KVCache(self.shape, len(network.layers), self.dtype, device)
        self.attention = compiled_attention(self.shape, self.dtype, device)
        self.rope = self.angles()
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
            self.read(tokens)
            logits = self.network.head(self.rows(tokens)[1:1 + depth])
            return Slots(packed_stats(logits, None, top), self.ids, torch.promote_types(logits.dtype, torch.float32))

    def read(self, tokens: tuple[int, ...]) -> None:
        """Computes missing keys and values of the tokens before the last from the target's hidden states."""
        self.cache.align(tokens[:-1], Draft())
        for start, taps in new_features(self.target, tokens, len(self.cache.rows), self.levels):
            where = slice(start, start + len(taps))
            self.reserve(where.stop)
            cos, sin = (table[where] for table in self.rope)
            keys, values = self.network.injected(self.network.feature(taps.to(self.dtype)), cos, sin)
            self.cache.kv[:, 0, :, where], self.cache.kv[:, 1, :, where] = keys, values
            self.cache.rows.depth += [1] * len(taps)
            self.fed += len(taps)

    def rows(self, tokens: tuple[int, ...]) -> Tensor:
        """Normed hidden states [1 + block, hidden] of the last token and the masks behind it; they are not kept."""
        start = len(tokens) - 1
        where = slice(start, start + 1 + self.block)
        self.reserve(where.stop)
        cos, sin = (table[where] for table in self.rope)
        view = (view_of(where, cos, sin, None, self.shape.group, self.cache.capacity) if self.attention is None
                else block_view(self.attention, where, start, cos, sin))
        self.forwards += 1
        return self.network.filled(tokens[-1], self.block, columns(self.cache.kv, view), view)

    def reserve(self, rows: int) -> None:
        """Makes room in the cache, and computes the angles for it."""
        self.cache.reserve(rows)
        if len(self.rope[0]) < self.cache.capacity:
            self.rope = self.angles()

    def angles(self) -> tuple[Tensor, Tensor]:
        """The rotary table of the whole cache, in single precision for compiled attention."""
        dtype = self.dtype if self.attention is None else torch.float32
        return rope_table(self.shape, self.cache.capacity, dtype, self.ids.device)
