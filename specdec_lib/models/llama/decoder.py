"""A decoder of the Llama family that scores (tokens, draft) with raw logits, and feeds only new rows.

One product gives queries, keys and values, another gate and up (`weights.py`); the rows lie in one preallocated cache
that aligns itself (`cache.py`). Feeding a draft that continues the last one costs its new nodes alone, and the logits
of the old ones are returned again (`logits_cache.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.device import to_device, to_host
from specdec_lib.models.llama.attention import hidden_block
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.cache_pool import Lease, earlier_nodes
from specdec_lib.models.llama.config import LlamaConfig, rope_table
from specdec_lib.models.llama.cuda_graph import CapturedStep, Head, width_for
from specdec_lib.models.llama.families import stored_weights
from specdec_lib.models.llama.forward import LayerView, block_view, invariant_view, through_layers, view_of
from specdec_lib.models.llama.four_bit_weights import Dtype, weights_of
from specdec_lib.models.llama.kernels import compiled_attention, layout_of
from specdec_lib.models.llama.logits_cache import LogitsCache
from specdec_lib.models.llama.path_attention import PathAttention
from specdec_lib.models.llama.row_stats import row_stats_of, tells, unpacked
from specdec_lib.models.llama.weights import LlamaWeights, random_weights
from specdec_lib.scores import ListedRowStats, Scores
from specdec_lib.types import Draft

CHUNK = 512                                        # rows fed at once while a prompt is read


class Transformer:
    """A language model (types.LM). `forwards` counts passes through the layers, `fed` the tokens embedded for them.

    `taps` names hidden states to keep for `features`: 0 is the embedding, i the output of layer i, the last one the
    normed state before the head, exactly transformers' `hidden_states`. With `bidirectional`, draft nodes see each
    other, whatever their parents, and none of their rows is kept. `static` pads steps to fixed widths, which a CUDA
    graph holds (`cuda_graph.py`); None is on a GPU and not on a CPU. Such a model's cache goes on to the next decode.
    """

    capture = True                                 # on a GPU, unless a model is told otherwise
    products = True                                # attention of captured steps by plain products, see forward.py

    def __init__(self, weights: LlamaWeights, taps: tuple[int, ...] = (), bidirectional: bool = False,
                 static: bool | None = None, cache: KVCache | None = None, depth: int | None = None,
                 head: Head | None = None, lease: Lease | None = None):
        self.weights, self.shape, self.bidirectional, self.head = weights, weights.shape, bidirectional, head
        self.static = self.capture and weights.device.type == "cuda" if static is None else static
        self.depth = depth or len(weights.layers)
        self.lease = (lease or Lease(weights, taps)) if self.static else None
        cache = cache if self.lease is None else self.lease.held.cache
        self.cache = cache or KVCache(self.shape, len(weights.layers), weights.dtype, weights.device, taps)
        self.layout = None if bidirectional or self.static else layout_of(weights)    # None: rows may depend on others
        self.blocks = compiled_attention(self.shape, self.dtype, self.device) if bidirectional else None
        if self.lease is None:
            self.table = self.angles()
        self.tells = self.static or tells(self.device, self.dtype)        # statistics of logits are taken at once
        self.answers = LogitsCache(self.static)
        self.forwards = self.fed = 0

    @staticmethod
    def load(folder: str | Path, dtype: Dtype = torch.float32, device="cpu", layers: int | None = None,
             ids: Tensor | None = None) -> Transformer:
        """The checkpoint in this folder; its first `layers` layers, a head with the rows `ids`. Refusal if not ours."""
        shape, get = stored_weights(folder)
        return Transformer(weights_of(shape, get, dtype, device, layers, ids))

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
    def compiled_attention(self) -> bool:
        """Whether attention runs in our own compiled code (`path_attention.py`)."""
        return isinstance(self.layout, PathAttention)

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

    @property
    def rope(self) -> tuple[Tensor, Tensor]:       # of the whole cache
        return self.table if self.lease is None else self.lease.held.rope

    @property
    def steps(self) -> dict[tuple, CapturedStep]:
        """The captured steps on this cache, those of earlier decodes among them."""
        return {} if self.lease is None else self.lease.held.steps

    def restricted(self, ids: Tensor) -> Transformer:
        """The same model with the head rows of these tokens alone, and an empty cache."""
        weights = replace(self.weights, head=self.weights.head.rows(ids), ids=ids.to(self.device))
        return Transformer(weights, self.cache.taps, self.bidirectional, self.static, depth=self.depth)

    def exit(self, layer: int, head: Head | None = None) -> Transformer:
        """A model on the same cache that stops after `layer` layers; the full model resumes its rows from there.

        `head` reads the hidden states after that layer; without one, the model's own norm and head do.
        """
        return Transformer(self.weights, (), self.bidirectional, self.static, self.cache, self.checked(layer), head,
                           self.lease)

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
            self.answers.keep(tokens, draft, known, *self.score(tokens, draft, known))
        return Scores(self.answers.rows(draft), self.ids, self.answers.stats(draft))

    @property
    def ids(self) -> Tensor | None:
        """Tokens of the head's rows; None = all, in order."""
        return self.weights.ids if self.head is None else self.head.ids

    def score(self, tokens: tuple[int, ...], draft: Draft, known: int) -> tuple[Tensor, ListedRowStats | None]:
        """Feeds the missing rows; returns logits of the rows from `known` on, and on a device their statistics."""
        self.cache.align(tokens, draft)
        rows, first, total = self.cache.rows, len(tokens) - 1 + known, len(tokens) + len(draft)
        if self.bidirectional:
            del rows.depth[len(tokens):]
        if len(rows) > first and rows.depth[first] >= self.depth:
            del rows.depth[first:]                 # deep enough, but their logits were not kept
        self.catch_up(len(tokens) - 1, CHUNK)
        width = self.width(total)
        if width is None:
            logits = self.read(self.run(total)[first - total:])
            stats = row_stats_of(logits, self.ids) if self.tells else None
        else:
            logits, packed = (part[first - total:] for part in self.step(width, total)[1:])
            stats = unpacked(to_host(packed), logits.dtype) if self.tells else None
        if self.bidirectional:
            del rows.depth[len(tokens):]
        return logits, stats

    def read(self, x: Tensor) -> Tensor:
        """Logits of these hidden states."""
        with torch.inference_mode():
            return self.weights.head(self.normed(x)) if self.head is None else self.head(x)

    def catch_up(self, stop: int, slack: int = 0) -> None:
        """Feeds the context up to row `stop` in chunks, unless at most `slack` rows of it are missing."""
        while stop - self.cache.rows.shallow(self.depth) > slack:
            self.run(min(stop, self.cache.rows.shallow(self.depth) + CHUNK))

    def run(self, stop: int) -> Tensor:
        """Takes all rows before `stop` through this model's layers; returns their hidden states [rows, hidden]."""
        rows = self.cache.rows
        start, at = rows.shallow(self.depth), min(stop, len(rows))
        self.reserve(stop)
        with torch.inference_mode():
            x = self.climb(F.embedding(to_device(rows.flat(at, stop), self.device), self.weights.embedding), start, at,
                           stop)
        self.ran(x, start, at, stop)
        return x

    def ran(self, x: Tensor, start: int, at: int, stop: int) -> None:
        """Keeps account of rows `start` to `stop`, of which those from `at` on were fed."""
        if self.cache.hidden is not None:
            self.cache.hidden[start:stop] = x
        self.cache.rows.depth[start:stop] = [self.depth] * (stop - start)
        self.forwards, self.fed = self.forwards + 1, self.fed + stop - at

    def width(self, stop: int) -> int | None:
        """The width of a fixed step up to row `stop`; None where plain steps take these rows."""
        start = len(self.cache.rows)
        if not self.static or self.cache.rows.shallow(self.depth) != start or stop <= start:
            return None
        return width_for(stop - start, earlier_nodes(self.cache.rows, start))

    def step(self, width: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """Runs the rows before `stop` as a fixed step: hidden states, logits and packed statistics of each."""
        assert self.lease is not None              # steps are static models' alone
        start = len(self.cache.rows)
        out = self.lease.held.run(self.weights, width, stop, self.depth, self.head, self.bidirectional, self.products)
        self.ran(out[0], start, start, stop)
        return out

    def climb(self, x: Tensor, start: int, at: int, stop: int) -> Tensor:
        """Takes embedded rows `at` to `stop` through the layers; rows from `start` join where they exited early."""
        depth, level = self.cache.rows.depth, 0
        while True:
            upto = self.depth if at == start else depth[at - 1]
            if len(x):
                x = through_layers(x, self.weights, self.cache, self.view(at, stop), level, upto)
            level = upto
            if at == start:
                return x
            below = at
            while at > start and depth[at - 1] == level:
                at -= 1
            assert self.cache.hidden is not None   # made when the first row exited early
            x = torch.cat((self.cache.hidden[at:below], x))

    def normed(self, x: Tensor) -> Tensor:
        return self.weights.normed(x)

    def view(self, start: int, stop: int) -> LayerView:
        """Angles and masks of these rows: a slice of the tables for a chain, gathered by position for a tree."""
        rows, where = self.cache.rows, slice(start, stop)
        places = where if rows.chain(stop) else to_device([*map(rows.position, range(start, stop))], self.device)
        cos, sin = (table[places] for table in self.rope)
        context = len(rows.tokens)
        if self.layout is not None:
            parents = rows.draft.parents[:max(0, stop - context)]
            return invariant_view(self.layout, where, len(rows), context, parents, cos, sin)
        if self.blocks is not None:
            return block_view(self.blocks, where, context, cos, sin)
        return view_of(where, cos, sin, self.block(start, stop), self.shape.group, self.cache.capacity)

    def block(self, start: int, stop: int) -> Tensor | None:
        """The mask of these rows at the right edge of their columns."""
        ahead = len(self.cache.rows.tokens)
        committed = max(0, min(stop, ahead) - start)
        parents = self.cache.rows.draft.parents if stop > ahead else ()
        return hidden_block(parents, committed, stop - start, self.bidirectional, self.dtype, self.device)

    def reserve(self, rows: int) -> None:
        """Makes room in the cache, and computes the angles for it."""
        if self.layout is not None:
            rows = self.layout.room(max(rows, len(self.cache.rows)), len(self.cache.rows.draft))
        if self.lease is not None:
            self.lease.held.reserve(self.weights, rows, self.depth < self.layers)
            return
        self.cache.reserve(rows, self.depth < self.layers)
        if len(self.rope[0]) < self.cache.capacity:
            self.table = self.angles()

    def angles(self) -> tuple[Tensor, Tensor]:
        """The rotary table of the whole cache, in single precision where rows keep their bits and where C reads it."""
        dtype = self.dtype if self.layout is None and self.blocks is None else torch.float32
        return rope_table(self.shape, self.cache.capacity, dtype, self.device)
