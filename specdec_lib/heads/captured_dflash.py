"""The block of a published drafter as one launch (`captured_block.py`): keys and values, slots and their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from specdec_lib.heads.captured_block import BlockMemory, angles_of, view_of_block
from specdec_lib.heads.captured_draft import width_of
from specdec_lib.heads.public_block import DFlashNetwork
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.cuda_graph import CapturedWork
from specdec_lib.models.llama.forward import columns
from specdec_lib.models.llama.row_stats import packed_stats

if TYPE_CHECKING:
    from specdec_lib.heads.dflash_head import DFlashHead

FEWEST = 8                                         # candidates of a slot: one graph for a chain and for most trees


class DFlashPlace(NamedTuple):
    """What a block is captured for."""

    slots: int
    candidates: int
    columns: int                                   # of the cache
    levels: int                                    # tapped layers


class CapturedDFlash(CapturedWork):
    """The whole block: the packed statistics of its slots [slots, 2k + 2]."""

    def __init__(self, place: DFlashPlace, network: DFlashNetwork, cache: KVCache, rope: tuple[Tensor, Tensor]):
        self.place, self.network, self.rope, self.width = place, network, rope, width_of(place.slots)
        self.parts = [self.width, 1 + place.slots, 1]            # rows of committed tokens and of the block; the anchor
        super().__init__(8 * sum(self.parts), cache)
        self.numbers = self.staged.numpy().view(np.int64)
        self.taps = torch.zeros(self.width, place.levels, network.shape.hidden, dtype=network.embedding.dtype,
                                device=self.device)

    def __call__(self, anchor: int, taps: Tensor, start: int) -> tuple[Tensor, ...]:
        """The block behind this token; valid until the next one.

        `taps` [rows, levels, hidden] are the hidden states of the tokens before it, the first of them in row `start`.
        """
        rows = len(taps)
        self.wait()
        base = start + rows                        # the anchor's
        self.numbers[:] = (*range(start, start + self.width), *range(base, base + 1 + self.place.slots), anchor)
        self.taps[:rows].copy_(taps)
        self.send()
        return self.launch()

    def compute(self) -> tuple[Tensor, ...]:
        """From the inputs, by way of the committed rows, to the slots."""
        known, block, anchor = self.inputs.view(torch.long).split(self.parts)
        w, kv = self.network, self.cache.kv
        for part, new in zip(kv.unbind(1), w.injected(w.feature(self.taps), *angles_of(self.rope, known)),
                             strict=True):
            part.index_copy_(2, known, new.to(part.dtype))
        view = view_of_block(block, self.place.columns, self.rope, w.shape.group, kv.dtype)
        x = w.filled(w.embedding[anchor], self.place.slots, columns(kv, view), view)
        return (packed_stats(w.head(x[1:]), None, self.place.candidates),)


def told_of(memory: BlockMemory[DFlashPlace, CapturedDFlash], head: DFlashHead, anchor: int, taps: Tensor, start: int,
            top: int) -> Tensor:
    """The packed statistics [slots, 2 top + 2] of the block behind this token.

    `taps` are the hidden states of rows from `start` on, which fit the graph.
    """
    stop = memory.columns(head, start + max(width_of(head.block), len(taps) + 1 + head.block))
    network, rope = head.network, head.rope
    top = min(top, len(network.embedding))
    k = min(len(network.embedding), max(FEWEST, 1 << (top - 1).bit_length()))
    place = DFlashPlace(head.block, k, stop, len(head.levels))
    block = memory.block(place, lambda: CapturedDFlash(place, network, memory.cache, rope))
    (told,) = block(anchor, taps, start)
    return torch.cat((told[:, :top], told[:, k:k + top], told[:, -2:]), 1)
