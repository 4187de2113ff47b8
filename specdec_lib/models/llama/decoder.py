"""A decoder of the Llama family that scores (tokens, draft) with raw logits, and feeds only new rows.

One product gives queries, keys and values, another gate and up (`weights.py`); the rows lie in one preallocated cache
that aligns itself (`cache.py`). Feeding a draft that continues the last one costs its new nodes alone, and the logits
of the old ones are returned again (`logits_cache.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.llama.attention import hidden_block
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.config import LlamaConfig, config_of, rope_table
from specdec_lib.models.llama.cuda_graph import CapturedStep, width_for
from specdec_lib.models.llama.forward import LayerView, columns, decoder_layer, view_of
from specdec_lib.models.llama.invariant_attention import parts_of
from specdec_lib.models.llama.kernels import layout_of
from specdec_lib.models.llama.logits_cache import LogitsCache
from specdec_lib.models.llama.row_stats import row_stats_of
from specdec_lib.models.llama.weights import LlamaWeights, check_tensors, fuse, random_weights, read_config, reader
from specdec_lib.scores import Scores
from specdec_lib.types import Draft

CHUNK = 512                                        # rows fed at once while a prompt is read


class Head(Protocol):
    """A head that an early exit may have of its own: hidden states [rows, hidden] to logits [rows, len(ids) or V]."""

    ids: Tensor | None                             # tokens of its columns; None = all, in order

    def __call__(self, x: Tensor) -> Tensor: ...


class Transformer:
    """A language model (types.LM). `forwards` counts passes through the layers, `fed` the tokens embedded for them.

    `taps` names hidden states to keep for `features`: 0 is the embedding, i the output of layer i, the last one the
    normed state before the head, exactly transformers' `hidden_states`. With `bidirectional`, draft nodes see each
    other, whatever their parents, and none of their rows is kept. `static` pads steps to fixed widths
    (`cuda_graph.py`); it is off by default, because capture in CUDA graphs is untested until a GPU run is recorded.
    """

    def __init__(self, weights: LlamaWeights, taps: tuple[int, ...] = (), bidirectional: bool = False,
                 static: bool = False, cache: KVCache | None = None, depth: int | None = None,
                 head: Head | None = None):
        self.weights, self.shape, self.bidirectional, self.head = weights, weights.shape, bidirectional, head
        self.static, self.depth = static, len(weights.layers) if depth is None else depth
        self.cache = cache or KVCache(self.shape, len(weights.layers), weights.dtype, weights.device, taps)
        self.layout = None if bidirectional or static else layout_of(weights)      # None: rows may depend on others
        self.rope = self.angles()
        self.steps: dict[tuple[int, int], CapturedStep] = {}
        self.answers = LogitsCache()
        self.forwards = self.fed = 0

    @staticmethod
    def load(folder: str | Path, dtype: torch.dtype = torch.float32, device="cpu", layers: int | None = None,
             ids: Tensor | None = None) -> Transformer:
        """The checkpoint in this folder; its first `layers` layers, a head with the rows `ids`. Refusal if not ours."""
        shape = config_of(read_config(folder))
        check_tensors(shape, folder)
        return Transformer(fuse(shape, reader(folder), dtype, device, layers, ids))

    @staticmethod
    def random(shape: LlamaConfig, seed: int = 0, dtype: torch.dtype = torch.float32, device="cpu") -> Transformer:
        """A decoder with random weights."""
        return Transformer(random_weights(shape, seed, dtype, device))

    @property
    def context(self) -> int:
        return self.shape.context

    @property
    def vocab(self) -> int:
        return self.shape.vocab

    @property
    def batch_invariant(self) -> bool:
        """Whether the bits of a row do not depend on the rows that are computed with it (`kernels.py`)."""
        return self.layout is not None

    @property
    def layers(self) -> int:
        return len(self.weights.layers)

    @property
    def dtype(self) -> torch.dtype:
        return self.weights.dtype

    @property
    def device(self) -> torch.device:
        return self.weights.device

    def fresh(self, bidirectional: bool | None = None) -> Transformer:
        """The same weights and taps with an empty cache."""
        both = self.bidirectional if bidirectional is None else bidirectional
        return Transformer(self.weights, self.cache.taps, both, self.static, depth=self.depth, head=self.head)

    def first_layers(self, count: int) -> Transformer:
        """An independent model of the first layers with the same norm and head: a draft baseline. Shares weights."""
        return Transformer(replace(self.weights, layers=self.weights.layers[:self.checked(count)]), static=self.static)

    def restricted(self, ids: Tensor) -> Transformer:
        """The same model with the head rows of these tokens alone, and an empty cache."""
        weights = replace(self.weights, head=self.weights.head.rows(ids), ids=ids)
        return Transformer(weights, self.cache.taps, self.bidirectional, self.static, depth=self.depth)

    def exit(self, layer: int, head: Head | None = None) -> Transformer:
        """A model on the same cache that stops after `layer` layers; the full model resumes its rows from there.

        `head` reads the hidden states after that layer; without one, the model's own norm and head do.
        """
        return Transformer(self.weights, (), self.bidirectional, self.static, self.cache, self.checked(layer), head)

    def checked(self, layer: int) -> int:
        if not 0 < layer <= self.layers:
            raise ValueError(f"the model has {self.layers} layers, {layer} were requested")
        return layer

    def tap(self, layers: tuple[int, ...]) -> None:
        """Chooses the hidden states kept for `features`; a new choice drops the rows that were fed before."""
        if not all(0 <= layer <= self.layers for layer in layers):
            raise ValueError(f"taps lie between 0 and {self.layers}, got {tuple(layers)}")
        if tuple(layers) != self.cache.taps:
            self.cache.tap(tuple(layers))
            self.steps.clear()

    def features(self, tokens: tuple[int, ...]) -> Tensor:
        """The taps [fed, taps, hidden] of exactly this context, without a forward; accepted nodes are included.

        The last token may not have been fed yet; ValueError if more are missing. A view, valid until the context
        shrinks.
        """
        if self.cache.features is None:
            raise ValueError("no taps were chosen: call tap(layers) before the prompt is fed")
        fed = self.cache.fed(tokens, max(self.cache.taps))
        if fed < len(tokens) - 1:
            raise ValueError(f"only {fed} of these {len(tokens)} tokens have been fed")
        return self.cache.features[:fed]

    def prefill(self, tokens: tuple[int, ...]) -> None:
        """Feeds these tokens and computes no logits."""
        self.cache.align(tokens, Draft())
        self.catch_up(len(tokens))

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        if not tokens:
            raise ValueError("a model needs at least one token of context")
        known = self.answers.known(tokens, draft)
        if self.bidirectional and not known - 1 == len(draft) == len(self.answers.draft):
            known = 0                              # one node more changes the logits of all others
        if known <= len(draft):
            self.answers.keep(tokens, draft, known, self.score(tokens, draft, known))
        logits = self.answers.rows(draft)
        ids = self.weights.ids if self.head is None else self.head.ids
        return Scores(logits, ids, row_stats_of(logits, ids) if logits.is_cuda else None)

    def score(self, tokens: tuple[int, ...], draft: Draft, known: int) -> Tensor:
        """Feeds the missing rows and returns the logits of the rows from `known` on."""
        self.cache.align(tokens, draft)
        rows, first, total = self.cache.rows, len(tokens) - 1 + known, len(tokens) + len(draft)
        if self.bidirectional:
            del rows.depth[len(tokens):]
        if len(rows) > first and rows.depth[first] >= self.depth:
            del rows.depth[first:]                 # deep enough, but their logits were not kept
        self.catch_up(len(tokens) - 1, CHUNK)
        x = self.run(total)
        if self.bidirectional:
            del rows.depth[len(tokens):]
        with torch.inference_mode():
            last = x[first - total:]
            return self.weights.head(self.normed(last)) if self.head is None else self.head(last)

    def catch_up(self, stop: int, slack: int = 0) -> None:
        """Feeds the context up to row `stop` in chunks, unless at most `slack` rows of it are missing."""
        while stop - self.cache.rows.shallow(self.depth) > slack:
            self.run(min(stop, self.cache.rows.shallow(self.depth) + CHUNK))

    def run(self, stop: int) -> Tensor:
        """Takes all rows before `stop` through this model's layers; returns their hidden states [rows, hidden]."""
        rows = self.cache.rows
        start, at = rows.shallow(self.depth), min(stop, len(rows))
        width = width_for(stop - start) if self.static and at == start else None
        self.reserve(stop if width is None else start + width)
        with torch.inference_mode():
            if width is None:
                flat = torch.tensor(rows.flat(at, stop), dtype=torch.long).to(self.device)
                x = self.climb(F.embedding(flat, self.weights.embedding), start, at, stop)
            else:
                x = self.step(width)(rows.flat(start, stop), [rows.position(row) for row in range(start, stop)],
                                     start, self.block(start, stop))
            if self.cache.hidden is not None:
                self.cache.hidden[start:stop] = x
        rows.depth[start:stop] = [self.depth] * (stop - start)
        self.forwards, self.fed = self.forwards + 1, self.fed + stop - at
        return x

    def climb(self, x: Tensor, start: int, at: int, stop: int) -> Tensor:
        """Takes embedded rows `at` to `stop` through the layers; rows from `start` join where they exited early."""
        depth, level = self.cache.rows.depth, 0
        while True:
            upto = self.depth if at == start else depth[at - 1]
            if len(x):
                x = self.through(x, self.view(at, stop), level, upto)
            level = upto
            if at == start:
                return x
            below = at
            while at > start and depth[at - 1] == level:
                at -= 1
            assert self.cache.hidden is not None   # made when the first row exited early
            x = torch.cat((self.cache.hidden[at:below], x))

    def through(self, x: Tensor, view: LayerView, first: int, last: int) -> Tensor:
        """Applies layers `first` to `last` to these rows and keeps the tapped hidden states."""
        if first == 0:
            self.keep(x, 0, view)
        layers = self.weights.layers[first:last]
        for i, (w, kv) in enumerate(zip(layers, columns(self.cache.kv[first:last], view), strict=True), first + 1):
            x = decoder_layer(x, w, self.shape, kv, view)
            self.keep(x, i, view)
        return x

    def keep(self, x: Tensor, level: int, view: LayerView) -> None:
        """Stores the hidden states of these rows if this level is tapped."""
        for place, tap in enumerate(self.cache.taps):
            if tap == level:
                assert self.cache.features is not None           # there are taps
                self.cache.features[view.where, place] = self.normed(x) if tap == self.layers else x

    def normed(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.shape.hidden,), self.weights.norm, self.shape.eps)

    def view(self, start: int, stop: int) -> LayerView:
        """Angles and masks of these rows: a slice of the tables for a chain, gathered by position for a tree."""
        cos, sin = self.rope
        where = slice(start, stop)
        if not self.cache.rows.chain(stop):
            where = torch.tensor([self.cache.rows.position(row) for row in range(start, stop)], device=self.device)
        rows = self.cache.rows
        if self.layout is not None:
            context = len(rows.tokens)
            parents = rows.draft.parents[:max(0, stop - context)]
            parts = parts_of(self.layout, start, stop, len(rows), context, parents)
            seen = max(stop, *(part.columns for part in parts))
            return LayerView(slice(start, stop), seen, cos[where], sin[where], parts=parts)
        return view_of(slice(start, stop), cos[where], sin[where], self.block(start, stop), self.shape.group,
                       self.cache.capacity)

    def block(self, start: int, stop: int) -> Tensor | None:
        """The mask of these rows at the right edge of their columns."""
        ahead = len(self.cache.rows.tokens)
        committed = max(0, min(stop, ahead) - start)
        parents = self.cache.rows.draft.parents if stop > ahead else ()
        return hidden_block(parents, committed, stop - start, self.bidirectional, self.dtype, self.device)

    def step(self, width: int) -> CapturedStep:
        """The captured step of this width, made again when the cache has grown."""
        if (width, self.cache.capacity) not in self.steps:
            self.steps = {key: step for key, step in self.steps.items() if key[1] == self.cache.capacity}
            self.steps[width, self.cache.capacity] = CapturedStep(
                width, self.cache.capacity, self.shape.group, self.weights.embedding, self.rope,
                lambda x, view: self.through(x, view, 0, self.depth))
        return self.steps[width, self.cache.capacity]

    def reserve(self, rows: int) -> None:
        """Makes room in the cache, and computes the angles for it."""
        if self.layout is not None:
            rows = self.layout.room(max(rows, len(self.cache.rows)), len(self.cache.rows.draft))
        self.cache.reserve(rows, self.depth < self.layers)
        if len(self.rope[0]) < self.cache.capacity:
            self.rope = self.angles()

    def angles(self) -> tuple[Tensor, Tensor]:
        """The rotary table of the whole cache, in single precision where a row must not depend on the others."""
        dtype = self.dtype if self.layout is None else torch.float32
        return rope_table(self.shape, self.cache.capacity, dtype, self.device)
