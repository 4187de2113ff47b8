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
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.base import (
    PerTarget,
    TargetWeights,
    checked_tensors,
    draft_vocabulary,
    every_output_row,
    new_features,
    tap_levels,
)
from specdec_lib.heads.block_rows import compiled_block
from specdec_lib.heads.block_walk import Block, CompiledLinks, Slots, link, walk, walked
from specdec_lib.heads.draft_vocabulary import DraftVocabulary, TextRows, text_rows
from specdec_lib.heads.drafter_linear import drafter_layer, drafter_linear, output_rows
from specdec_lib.linked_slots import LinkedSlots
from specdec_lib.models.device import to_device
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.compiled_linear import normed
from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.forward import attended, block_view, columns, decoder_layer, layer_after, scaled, view_of
from specdec_lib.models.llama.kernels import compiled_attention
from specdec_lib.models.llama.row_stats import packed_stats
from specdec_lib.models.llama.weights import MATRICES, LayerWeights, Linear, code_of
from specdec_lib.types import Draft, Lattice, Refusal


@dataclass(frozen=True)
class BlockWeights:
    """The tensors of a block drafter, packed for one target."""

    fc: Linear                                     # concatenated taps -> a token's feature [hidden]
    first: LayerWeights                            # its qkv reads a token and a feature, concatenated
    inject_first: Linear                           # the same pair -> its keys and values
    inject: Linear                                 # feature -> keys and values of every other layer, layer after layer
    layers: tuple[LayerWeights, ...]               # the other layers
    norm: Tensor                                   # [hidden], before the head
    head: Linear                                   # the target's output rows of `ids`
    rows: Tensor                                   # the same [rows, hidden] unpacked, for candidates
    text: TextRows | None                          # the output rows of all tokens, where they lie open
    masks: Tensor                                  # [slots - 1, hidden] stand in for unknown tokens, slot by slot
    correction: Linear                             # the token before -> what it adds to a slot's hidden state
    confidence: Tensor                             # [2 hidden] reads a slot's hidden state and the token before
    ids: Tensor                                    # [rows] the draft vocabulary
    embedding: Tensor                              # [V, hidden] the target's

    @staticmethod
    def pack(state: Mapping[str, Tensor], taps: int, target: TargetWeights) -> BlockWeights:
        """From a checkpoint's tensors, for `taps` tapped layers. Refusal where they do not fit the target."""
        shape, h = target.shape, target.shape.hidden
        queries, keys = shape.heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
        sizes = {"qkv": (queries + keys, h), "out": (h, queries), "gate_up": (-1, h), "down": (h, -1)}
        put = checked_tensors(state, {**sizes, "qkv": (queries + keys, 2 * h), "fc": (h, taps * h), "norm": (h,),
                                      "mask": (-1, h), "correction": (h, h), "confidence": (2 * h,)}, target)
        others = [gated_layer(state, i, sizes, target) for i in range(sum("down" in name for name in state) - 1)]
        ids = draft_vocabulary(state, target)
        head = output_rows(target, ids)
        inject = torch.cat([layer["qkv"][queries:] for layer in others])
        return BlockWeights(drafter_linear(put["fc"], target), drafter_layer(put, "", target),
                            drafter_linear(put["qkv"][queries:], target), drafter_linear(inject, target),
                            tuple(drafter_layer(layer, "", target) for layer in others), put["norm"],
                            head, head.dense().contiguous(), text_rows(state["ids"], every_output_row(target)),
                            put["mask"].to(target.embedding.dtype), drafter_linear(put["correction"], target),
                            put["confidence"], ids, target.embedding)


def gated_layer(state: Mapping[str, Tensor], i: int, sizes: Mapping[str, tuple[int, ...]], target: TargetWeights
                ) -> dict[str, Tensor]:
    """The matrices of the i-th layer behind the first, `out` and `down` multiplied by their gates; as stored else."""
    h = target.shape.hidden
    layer = checked_tensors(state, {f"layers.{i}.{name}": size for name, size in sizes.items()}, target)
    gates = checked_tensors(state, {f"gates.{i}.attention": (h,), f"gates.{i}.mlp": (h,)}, target)
    made = {name: layer[f"layers.{i}.{name}"] for name in MATRICES}
    for name, gate in (("out", "attention"), ("down", "mlp")):
        made[name] = gates[f"gates.{i}.{gate}"].double()[:, None] * made[name].double()
    return made


class BlockHead:
    """`head(tokens, depth)` returns a `Block`; `forwards` counts blocks, `fed` committed tokens read.

    It taps the target when made, so make it before the prompt is fed. Each call reads missing hidden states from
    `target.features`, however many rounds passed since the last call; it reads only those before the last token.
    With `text_tokens` the tokens of the text join those that it was trained to draft.
    """

    def __init__(self, state: Mapping[str, Tensor], meta: Mapping, target: Transformer, block: int | None = None,
                 packed: BlockWeights | None = None,      # packed earlier from the same state
                 text_tokens: bool = False):
        self.block = meta["block"] if block is None else block            # trained for meta["block"]
        if self.block < 1:
            raise Refusal(f"a block has at least one slot, got {self.block}")
        tap_levels(target, meta["taps"])
        self.levels = tuple(meta["taps"])
        self.target, self.shape = target, target.shape
        self.weights = BlockWeights.pack(state, len(meta["taps"]), target.weights) if packed is None else packed
        self.embedding = self.weights.embedding
        self.vocabulary = DraftVocabulary(self.weights.ids, self.weights.text if text_tokens else None)
        self.candidates = min(max(2, meta["candidates"]), len(self.weights.ids))
        self.cache = KVCache(self.shape, 1 + len(self.weights.layers), self.embedding.dtype, target.device)
        self.attention = compiled_attention(self.shape, self.embedding.dtype, target.device)
        self.rope = self.angles()
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
        if self.compiled is not None:
            told, chain = self.fill(tokens, depth, self.candidates, walk=True)
            assert chain is not None               # it was asked for
            return walked(self.slots(told), chain.tolist())
        with torch.inference_mode():
            x, slots = self.drafted(tokens, depth, self.candidates)
            return walk(tokens[-1], x, slots, self.output_rows(slots), self.word, self.weights.correction,
                        self.weights.confidence)

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
        if self.compiled is not None:
            told, _ = self.fill(tokens, depth, min(top, self.candidates))
            return CompiledLinks(self, self.compiled, told)
        with torch.inference_mode():
            slots = self.candidates_of(tokens, depth, top)
            return link(slots, self.output_rows(slots), self.word, self.weights.correction)

    def candidates_of(self, tokens: tuple[int, ...], depth: int, top: int) -> Slots:
        """The `top` candidates of each slot; ValueError for an impossible depth."""
        self.check(depth)
        top = min(top, self.candidates)
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

    def output_rows(self, slots: Slots) -> Tensor:
        """The output rows [slots, k, hidden] of the candidates."""
        text = self.weights.text
        return self.weights.rows[slots.columns] if text is None else text.every[slots.lattice.ids]

    def word(self, tokens: Tensor) -> Tensor:
        """The normed embeddings [n, hidden] of these tokens."""
        return scaled(F.embedding(tokens, self.embedding), self.shape.eps, code_of(self.weights.head))

    def fill(self, tokens: tuple[int, ...], depth: int, top: int, walk: bool = False) -> tuple[Tensor, Tensor | None]:
        """The first `depth` slots of the block in compiled code: statistics of each, and the walk through them."""
        assert self.compiled is not None           # the caller asked
        self.read(tokens)
        start = max(0, len(tokens) - 2)
        self.reserve(start + self.block)
        self.forwards += 1
        return self.compiled.draft(self, tokens[-1], start, depth, top, walk)

    def drafted(self, tokens: tuple[int, ...], depth: int, top: int) -> tuple[Tensor, Slots]:
        """Normed hidden states [depth, hidden] of the slots, and their `top` candidates."""
        self.read(tokens)
        x = self.streams(tokens)[:depth]
        return x, self.slots(packed_stats(self.vocabulary.joined(self.weights.head(x), x), None, top))

    def read(self, tokens: tuple[int, ...]) -> None:
        """Computes missing rows of committed tokens from the target's hidden states.

        Row j holds token j + 1. That of the last token is the block's own, so only its feature is kept.
        """
        self.vocabulary.read(tokens)
        if self.first != tokens[:1]:
            del self.cache.rows.depth[:]
        self.first = tokens[:1]
        self.cache.align(tokens[1:-1], Draft())
        if len(tokens) == 1:
            self.feature = torch.zeros_like(self.feature)
        for at, streams in new_features(self.target, tokens, len(self.cache.rows), self.levels):
            with torch.inference_mode():
                self.keep(streams.to(self.embedding.dtype), tokens[at + 1:at + 1 + len(streams)], at)
            done = min(at + len(streams), len(tokens) - 2) - at
            self.cache.rows.depth += [1] * done
            self.fed += len(streams)

    def keep(self, taps: Tensor, tokens: tuple[int, ...], start: int) -> None:
        """Writes the rows from `start` on, with these tokens, from their hidden states `taps` [rows, taps, hidden]."""
        shape, w, stop = self.shape, self.weights, start + len(taps)
        self.reserve(stop)
        if self.compiled is not None:
            self.compiled.keep(self, taps, tokens, start)
            return
        cos, sin = (table[start:stop] for table in self.rope)
        feature = w.fc(scaled(taps.reshape(-1, shape.hidden), shape.eps, code_of(w.fc)).view(len(taps), -1))
        alone, pair = self.joined(F.embedding(to_device(tokens, feature.device), self.embedding), feature)
        kv = torch.cat((w.inject_first(pair), w.inject(alone)), -1)
        kv = kv.view(len(taps), 1 + len(w.layers), 2, shape.kv_heads, shape.head_dim).permute(1, 2, 3, 0, 4)
        keys = kv[:, 0]
        self.cache.kv[:, 0, :, start:stop] = keys * cos + keys.roll(shape.head_dim // 2, -1) * sin
        self.cache.kv[:, 1, :, start:stop] = kv[:, 1]
        self.feature = feature[-1:]

    def joined(self, words: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        """What layers read of rows with these embedded tokens and features: the features normed, and both joined."""
        count, hidden = feature.shape
        pair = scaled(torch.cat((words, feature), -1).view(2 * count, hidden), self.shape.eps, code_of(self.weights.fc))
        return pair[1::2].contiguous(), pair.view(count, 2 * hidden)

    def streams(self, tokens: tuple[int, ...]) -> Tensor:
        """Normed hidden states [block, hidden] of the anchor and the masks behind it; their rows are not kept."""
        w, shape = self.weights, self.shape
        start = max(0, len(tokens) - 2)
        stop = start + self.block
        self.reserve(stop)
        cos, sin = (table[start:stop] for table in self.rope)
        where = slice(start, stop)
        view = (view_of(where, cos, sin, None, shape.group, self.cache.capacity) if self.attention is None
                else block_view(self.attention, where, start, cos, sin))
        first, *others = columns(self.cache.kv, view)
        x = self.feature.repeat(self.block, 1)
        pair = self.joined(torch.cat((self.embedding[tokens[-1]][None], self.masks)), x)[1]
        x = layer_after(x, w.first.qkv(pair), w.first, shape, partial(attended, kv=first, view=view))
        for layer, kv in zip(w.layers, others, strict=True):
            x = decoder_layer(x, layer, shape, kv, view)
        self.forwards += 1
        return normed(code_of(w.head), x, w.norm, shape.eps)

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


def block_head(checkpoint, target: Transformer, block: int | None = None, text_tokens: bool = True) -> BlockHead:
    """The drafter of a loaded checkpoint for this target; its weights are packed once for all decodes."""
    tap_levels(target, checkpoint.meta["taps"])    # refused first if the target keeps no features
    return BlockHead(checkpoint.state, checkpoint.meta, target, block, PACKED(checkpoint, target.weights),
                     text_tokens)
