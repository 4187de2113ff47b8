"""A block as one launch: its shapes and addresses never change, so a CUDA graph holds it.

One graph takes in the last committed tokens, from the target's hidden states, fills every slot and walks through them.
Its numbers travel in one copy from pinned memory, the hidden states in another. A shorter draft is the beginning of the
block, so one graph serves every length. Rows of committed tokens are padded to a fixed width; padding lies behind the
last of them, where the block's rows overwrite it or no row sees it. `captured_dflash.py` has the same for published
drafters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from specdec_lib.heads.block_network import BlockWeights
from specdec_lib.heads.block_walk import Slots, steps
from specdec_lib.heads.captured_draft import JoinedVocabulary, room_for_text, width_of
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.cache_pool import ROWS
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.cuda_graph import CapturedWork, columns_for
from specdec_lib.models.llama.forward import LayerView, columns
from specdec_lib.models.llama.row_stats import packed_stats

if TYPE_CHECKING:
    from specdec_lib.heads.block_diffusion import BlockHead

Place = TypeVar("Place")
Block = TypeVar("Block", bound=CapturedWork)


class Reserving(Protocol):
    """A head that makes room in its cache, and has the angles of the whole cache."""

    rope: tuple[Tensor, Tensor]

    def reserve(self, rows: int) -> None: ...


def angles_of(rope: tuple[Tensor, Tensor], where: Tensor) -> tuple[Tensor, Tensor]:
    """The angles of these rows."""
    cos, sin = rope
    return cos[where], sin[where]


def view_of_block(where: Tensor, stop: int, rope: tuple[Tensor, Tensor], group: int, dtype: torch.dtype) -> LayerView:
    """The view of a block's rows, over `stop` columns: each sees all of them, and all before."""
    hidden = torch.zeros(stop, dtype=dtype, device=where.device)
    hidden.masked_fill_(torch.arange(stop, device=where.device) > where[-1:], float("-inf"))
    full = hidden.expand(group * len(where), -1).contiguous()
    return LayerView(where, stop, *angles_of(rope, where), full=full, products=True)


class BlockPlace(NamedTuple):
    """What a block is captured for."""

    slots: int
    candidates: int
    columns: int                                   # of the cache
    room: int                                      # for tokens of the text
    levels: int                                    # tapped layers


class CapturedBlock(CapturedWork):
    """The whole block: the packed statistics of its slots [slots, 2k + 2], and the walk through them [slots, 5]."""

    def __init__(self, place: BlockPlace, masks: Tensor, weights: BlockWeights, cache: KVCache,
                 rope: tuple[Tensor, Tensor]):
        self.place, self.masks, self.width = place, masks, width_of(place.slots)
        self.weights, self.rope = weights, rope
        # tokens of committed rows, their rows and those of slots, which of the first holds the feature that slots read,
        # the anchor, how many tokens of the text joined, and those
        self.parts = [self.width, self.width + place.slots, 1, 1, 1, place.room]
        super().__init__(8 * sum(self.parts), cache)
        self.numbers = self.staged.numpy().view(np.int64)
        self.taps = torch.zeros(self.width, place.levels, weights.shape.hidden, dtype=weights.embedding.dtype,
                                device=self.device)

    def __call__(self, tokens: tuple[int, ...], taps: Tensor, start: int, added: Collection[int]
                 ) -> tuple[Tensor, ...]:
        """The block behind the last of these tokens, which is the anchor; valid until the next block.

        `taps` [rows, levels, hidden] are the hidden states of the tokens before each; row `start` is that of the first.
        """
        rows, lack = len(tokens), self.width - len(tokens)
        self.wait()
        base = start + rows - 1                    # the anchor's
        self.numbers[:] = (*tokens, *[0] * lack, *range(start, start + self.width),
                           *range(base, base + self.place.slots), rows - 1, tokens[-1], len(added), *added,
                           *[0] * (self.place.room - len(added)))
        self.taps[:rows].copy_(taps)
        self.send()
        return self.launch()

    def compute(self) -> tuple[Tensor, ...]:
        """From the inputs, by way of the committed rows, to the slots and the walk."""
        tokens, where, last, anchor, joined, added = self.inputs.view(torch.long).split(self.parts)
        known, slots, w = where[:self.width], where[self.width:], self.weights
        feature = w.feature(self.taps)
        for part, new in zip(self.cache.kv.unbind(1), w.injected(tokens, feature, *self.angles(known)), strict=True):
            part.index_copy_(2, known, new.to(part.dtype))
        words, view = torch.cat((w.embedding[anchor], self.masks)), self.view(slots)
        x = w.filled(feature[last], words, columns(self.cache.kv, view), view)
        vocabulary = JoinedVocabulary.of(w.ids, w.text, added, joined)
        told = packed_stats(vocabulary.logits(w.head(x), x), None, self.place.candidates)
        found = Slots(told, vocabulary.ids, torch.promote_types(x.dtype, torch.float32))
        return told, steps(anchor, x, found, w.output_rows(found), w.word, w.correction, w.confidence)

    def angles(self, where: Tensor) -> tuple[Tensor, Tensor]:
        return angles_of(self.rope, where)

    def view(self, slots: Tensor) -> LayerView:
        return view_of_block(slots, self.place.columns, self.rope, self.weights.shape.group, self.cache.kv.dtype)


class BlockMemory(Generic[Place, Block]):
    """A cache of a block drafter and the blocks that were captured on it."""

    def __init__(self, shape: LlamaConfig, layers: int, embedding: Tensor):
        capacity = max(512, min(ROWS, 1 << (shape.context - 1).bit_length()))
        self.cache = KVCache(shape, layers, embedding.dtype, embedding.device, capacity=capacity)
        self.rope: tuple[Tensor, Tensor] | None = None           # of the whole cache, made by the first head
        self.blocks: dict[Place, Block] = {}
        self.last: Block | None = None             # that ran

    def columns(self, head: Reserving, stop: int) -> int:
        """Columns of a block on rows before `stop`, once there is room.

        A cache that grew lies elsewhere, so the blocks on it are dropped.
        """
        head.reserve(stop)
        if self.rope is not head.rope:             # it grows with the cache
            self.blocks.clear()
            self.rope = head.rope
        return columns_for(stop)

    def block(self, place: Place, made: Callable[[], Block]) -> Block:
        """The block for this, made if there is none; its first launch captures it."""
        if place not in self.blocks:
            self.blocks[place] = made()
        self.last = self.blocks[place]
        return self.last


def block_of(memory: BlockMemory[BlockPlace, CapturedBlock], head: BlockHead, tokens: tuple[int, ...], taps: Tensor,
             start: int) -> tuple[Tensor, ...]:
    """Statistics of all slots behind these tokens, and the walk through them, until the next block.

    `taps` are the hidden states of rows from `start` on, which fit the graph.
    """
    stop = memory.columns(head, start + max(width_of(head.block), len(taps) + head.block))
    joins = head.vocabulary.rows is not None
    place = BlockPlace(head.block, head.candidates, stop,
                       room_for_text(len(head.vocabulary.added)) if joins else 0, len(head.levels))
    masks, rope = head.masks.contiguous(), head.rope
    block = memory.block(place, lambda: CapturedBlock(place, masks, head.weights, memory.cache, rope))
    with torch.inference_mode():
        return block(tokens[start + 1:], taps, start, head.vocabulary.added)
