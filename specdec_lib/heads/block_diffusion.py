"""A block drafter: one forward over the anchor and masks drafts a whole block from the target's hidden states.

Source: DFlash (arXiv 2602.06036) for the hidden states injected as keys and values and the bidirectional block; DSpark
(arXiv 2607.05147) for the anchor slot that predicts, the left-to-right correction and the confidence; EAGLE-3 (arXiv
2503.01840) for the first layer, whose rows join a token's feature with the token after it. A committed token costs the
drafter one product and its keys and values, computed once; it passes no layer. The anchor is the last committed token:
its own hidden state does not exist yet. Its row, and those of the masks, hold the feature of the token before it.

Every block has the same length, however few of its tokens are needed: masks further right change the predictions of
the first slots, so a shorter draft is the beginning of the longer one, here as in training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from specdec_lib.heads.base import PerTarget, Target, block_length, new_features, tap_levels
from specdec_lib.heads.block_network import BlockWeights
from specdec_lib.heads.block_rows import compiled_block
from specdec_lib.heads.block_walk import Block, CompiledLinks, Slots, link, walk, walked
from specdec_lib.heads.captured_block import BlockMemory, block_of
from specdec_lib.heads.captured_draft import width_of
from specdec_lib.heads.dflash_head import DFlashHead
from specdec_lib.heads.draft_vocabulary import DraftVocabulary
from specdec_lib.heads.memory_lease import MemoryLease
from specdec_lib.heads.public_block import PublicBlock
from specdec_lib.linked_slots import LinkedSlots
from specdec_lib.models.device import to_device, to_host
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.forward import block_view, columns, view_of
from specdec_lib.models.llama.kernels import compiled_attention
from specdec_lib.models.llama.row_stats import packed_stats
from specdec_lib.types import Draft, Lattice


class BlockHead:
    """`head(tokens, depth)` returns a `Block`; `forwards` counts blocks, `fed` committed tokens read.

    It taps the target when made, so make it before the prompt is fed. Each call reads missing hidden states from
    `target.features`, however many rounds passed since the last call; it reads only those before the last token.
    With `text_tokens` the tokens of the text join those that it was trained to draft. Beside a target of captured steps
    a block is captured too (`captured_block.py`), and the cache goes on to the next decode.
    """

    capture = True                                 # beside such a target, unless a head is told otherwise

    def __init__(self, state: Mapping[str, Tensor], meta: Mapping, target: Transformer, block: int | None = None,
                 packed: BlockWeights | None = None,      # packed earlier from the same state
                 text_tokens: bool = False):
        self.block = block_length(meta["block"] if block is None else block, target)     # trained for meta["block"]
        tap_levels(target, meta["taps"])
        self.levels = tuple(meta["taps"])
        self.target, self.shape = target, target.shape
        self.weights = BlockWeights.pack(state, len(meta["taps"]), target.weights) if packed is None else packed
        self.embedding = self.weights.embedding
        self.vocabulary = DraftVocabulary(self.weights.ids, self.weights.text if text_tokens else None)
        self.candidates = min(max(2, meta["candidates"]), len(self.weights.ids))
        static = self.capture and isinstance(target, Transformer) and target.static
        layers = 1 + len(self.weights.layers)
        self.lease = (MemoryLease(self.weights.free, lambda: BlockMemory(self.shape, layers, self.embedding))
                      if static else None)
        self.cache = (KVCache(self.shape, layers, self.embedding.dtype, target.device)
                      if self.lease is None else self.lease.held.cache)
        self.attention = compiled_attention(self.shape, self.embedding.dtype, target.device)
        self.rope = (None if self.lease is None else self.lease.held.rope) or self.angles()
        self.feature = self.embedding.new_zeros(1, self.shape.hidden)          # of the token before the anchor
        self.first: tuple[int, ...] = ()           # no row holds the first token, so it is stored here
        self.compiled = compiled_block(self)
        self.forwards = self.fed = 0

    @property
    def ids(self) -> Tensor:
        return self.vocabulary.ids

    def __call__(self, tokens: tuple[int, ...], depth: int) -> Block:
        """The block after these tokens, its chain `depth` slots long. ValueError for an impossible depth."""
        self.check(depth)
        if found := self.captured(tokens):
            return walked(self.slots(found[0][:depth]), to_host(found[1][:depth]).tolist())
        if self.compiled is not None:
            told, chain = self.fill(tokens, depth, self.candidates, walk=True)
            assert chain is not None               # it was asked for
            return walked(self.slots(told), chain.tolist())
        with torch.inference_mode():
            (x, slots), w = self.drafted(tokens, depth, self.candidates), self.weights
            return walk(tokens[-1], x, slots, w.output_rows(slots), w.word, w.correction, w.confidence)

    def lattice(self, tokens: tuple[int, ...], depth: int, top: int) -> Lattice:
        """The `top` candidates of each slot of the same block under the slot's own distribution.

        ValueError for an impossible depth.
        """
        with torch.inference_mode():
            return self.candidates_of(tokens, depth, top).lattice

    def links(self, tokens: tuple[int, ...], depth: int, top: int) -> LinkedSlots:
        """The `top` candidates of each slot of the same block, later ones corrected by each of the slot before.

        See `block_walk.link`. They are read before the next block is drafted. ValueError for an impossible depth.
        """
        self.check(depth)
        if self.compiled is not None and self.lease is None:
            told, _ = self.fill(tokens, depth, min(top, self.candidates))
            return CompiledLinks(self, self.compiled, told)
        with torch.inference_mode():
            slots = self.candidates_of(tokens, depth, top)
            return link(slots, self.weights.output_rows(slots), self.weights.word, self.weights.correction)

    def candidates_of(self, tokens: tuple[int, ...], depth: int, top: int) -> Slots:
        """The `top` candidates of each slot; ValueError for an impossible depth."""
        self.check(depth)
        top = min(top, self.candidates)
        if found := self.captured(tokens):
            told, k = found[0][:depth], self.candidates
            return self.slots(torch.cat((told[:, :top], told[:, k:k + top], told[:, -2:]), 1))
        if self.compiled is not None:
            return self.slots(self.fill(tokens, depth, top)[0])
        return self.drafted(tokens, depth, top)[1]

    def check(self, depth: int) -> None:
        """Raises ValueError for an impossible depth."""
        if not 1 <= depth <= self.block:
            raise ValueError(f"a block of {self.block} drafts 1 to {self.block} tokens, {depth} were asked for")

    def slots(self, told: Tensor) -> Slots:
        """The candidates, from the packed statistics of the slots."""
        return Slots(told, self.ids, torch.promote_types(self.embedding.dtype, torch.float32))

    def fill(self, tokens: tuple[int, ...], depth: int, top: int, walk: bool = False) -> tuple[Tensor, Tensor | None]:
        """The first `depth` slots of the block in compiled code: statistics of each, and the walk through them."""
        assert self.compiled is not None           # the caller asked
        self.read(tokens)
        start = max(0, len(tokens) - 2)
        self.reserve(start + self.block)
        self.forwards += 1
        return self.compiled.draft(self, tokens[-1], start, depth, top, walk)

    def captured(self, tokens: tuple[int, ...]) -> tuple[Tensor, Tensor] | None:
        """Statistics of all slots, and the walk through them until the next block, in one launch.

        None without captured steps, and where no token stands before the anchor.
        """
        if self.lease is None or len(tokens) < 2:
            return None
        taps, start = self.read(tokens, width_of(self.block))
        self.forwards += 1
        told, chain = block_of(self.lease.held, self, tokens, taps, start)
        return told.clone(), chain

    def drafted(self, tokens: tuple[int, ...], depth: int, top: int) -> tuple[Tensor, Slots]:
        """Normed hidden states [depth, hidden] of the slots, and their `top` candidates."""
        self.read(tokens)
        x = self.streams(tokens)[:depth]
        return x, self.slots(packed_stats(self.vocabulary.joined(self.weights.head(x), x), None, top))

    def read(self, tokens: tuple[int, ...], most: int = 0) -> tuple[Tensor, int]:
        """Computes missing rows of committed tokens from the target's hidden states, all but the last `most`.

        Row j holds token j + 1. That of the last token is the block's own, so only its feature is kept. Returns the
        hidden states [rows, taps, hidden] of those that are left, and the first of them.
        """
        left = self.embedding.new_zeros(0), len(tokens) - 1
        self.vocabulary.read(tokens)
        if self.first != tokens[:1]:
            del self.cache.rows.depth[:]
        self.first = tokens[:1]
        self.cache.align(tokens[1:-1], Draft())
        if len(tokens) == 1:
            self.feature = torch.zeros_like(self.feature)
        for at, streams in new_features(self.target, tokens, len(self.cache.rows), self.levels):
            ends = at + len(streams) == len(tokens) - 1
            here = max(0, len(streams) - most) if ends else len(streams)
            with torch.inference_mode():
                taps = streams.to(self.embedding.dtype)
                if here:
                    self.keep(taps[:here], tokens[at + 1:at + 1 + here], at)
            left = taps[here:], at + here
            done = min(at + len(streams), len(tokens) - 2) - at
            self.cache.rows.depth += [1] * done
            self.fed += len(streams)
        return left

    def keep(self, taps: Tensor, tokens: tuple[int, ...], start: int) -> None:
        """Writes the rows from `start` on, with these tokens, from their hidden states `taps` [rows, taps, hidden]."""
        stop = start + len(taps)
        self.reserve(stop)
        if self.compiled is not None:
            self.compiled.keep(self, taps, tokens, start)
            return
        feature, where = self.weights.feature(taps), slice(start, stop)
        cos, sin = (table[where] for table in self.rope)
        tokens_there = to_device(tokens, feature.device)
        self.cache.kv[:, 0, :, where], self.cache.kv[:, 1, :, where] = self.weights.injected(tokens_there, feature,
                                                                                             cos, sin)
        self.feature = feature[-1:]

    def streams(self, tokens: tuple[int, ...]) -> Tensor:
        """Normed hidden states [block, hidden] of the anchor and the masks behind it; their rows are not kept."""
        start = max(0, len(tokens) - 2)
        stop = start + self.block
        self.reserve(stop)
        cos, sin = (table[start:stop] for table in self.rope)
        where = slice(start, stop)
        view = (view_of(where, cos, sin, None, self.shape.group, self.cache.capacity) if self.attention is None
                else block_view(self.attention, where, start, cos, sin))
        words = torch.cat((self.embedding[tokens[-1]][None], self.masks))
        self.forwards += 1
        return self.weights.filled(self.feature, words, columns(self.cache.kv, view), view)

    @property
    def masks(self) -> Tensor:
        """One mask for each slot behind the anchor's [block - 1, hidden]; past the trained ones the last again."""
        there, lack = self.weights.masks[:self.block - 1], self.block - 1 - len(self.weights.masks)
        return there if lack <= 0 else torch.cat((there, there[-1:].expand(lack, -1)))

    def reserve(self, rows: int) -> None:
        """Makes room in the cache, and computes the angles for it."""
        self.cache.reserve(rows)
        if len(self.rope[0]) < self.cache.capacity:
            self.rope = self.angles()

    def angles(self) -> tuple[Tensor, Tensor]:
        """The rotary table of the whole cache, in single precision for compiled attention."""
        dtype = self.embedding.dtype if self.attention is None else torch.float32
        return rope_table(self.shape, self.cache.capacity, dtype, self.target.device)


PACKED = PerTarget(lambda checkpoint, target: BlockWeights.pack(checkpoint.state, len(checkpoint.meta["taps"]), target))
NETWORK = PerTarget(lambda published, target: published.network(target))


def block_head(checkpoint, target: Target, block: int | None = None, text_tokens: bool = True
               ) -> BlockHead | DFlashHead:
    """The drafter of a checkpoint, or a published one, for this target; its weights are packed once for all decodes.

    A published drafter drafts every token, those of the text included.
    """
    tap_levels(target, checkpoint.meta["taps"])    # refused first if the target keeps no features
    if isinstance(checkpoint, PublicBlock):
        return DFlashHead(NETWORK(checkpoint, target.weights), checkpoint.layout.taps, target, block)
    return BlockHead(checkpoint.state, checkpoint.meta, cast(Transformer, target), block,
                     PACKED(checkpoint, target.weights), text_tokens)
