"""One lean decoder of the Llama family that answers (tokens, draft) with raw logits, and feeds only what is new.

Queries, keys and values come from one product, gate and up from another; attention writes into one preallocated
cache that aligns itself (`cache.py`). Feeding a draft that continues the last one costs its new nodes alone, and the
logits of the old ones are handed out again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.attention import attend, hidden_block, plainly, whole
from specdec_lib.models.cache import Cache, common_nodes
from specdec_lib.models.shape import Shape, rope_table, shape_of
from specdec_lib.models.weights import Layer, Weights, fuse, random_weights, read_config, reader
from specdec_lib.types import Brief, Draft, Scores, top_by_blocks

CHUNK = 512                                        # rows fed at once while a prompt is read


@dataclass
class Answer:
    """Logits already handed out: rows of `logits` beyond `rows` are free and may be written later."""

    tokens: tuple[int, ...]
    draft: Draft
    logits: Tensor                                 # [at least rows, V]
    rows: int


class Transformer:
    """A language model (types.LM). `forwards` counts passes through the layers, `fed` the tokens embedded for them.

    `taps` names residual streams to keep for `features`: 0 is the embedding, i what layer i gives, the last one the
    normed stream before the head, exactly transformers' `hidden_states`. With `bidirectional`, draft nodes see each
    other, whatever their parents, and none of their rows is kept.
    """

    def __init__(self, weights: Weights, taps: tuple[int, ...] = (), bidirectional: bool = False,
                 cache: Cache | None = None, depth: int | None = None):
        self.weights, self.shape, self.bidirectional = weights, weights.shape, bidirectional
        self.depth = len(weights.layers) if depth is None else depth
        self.cache = cache or Cache(self.shape, len(weights.layers), weights.dtype, weights.device, taps)
        self.rope = rope_table(self.shape, self.cache.capacity, weights.dtype, weights.device)
        self.answer: Answer | None = None
        self.forwards = self.fed = 0

    @staticmethod
    def load(folder: str | Path, dtype: torch.dtype = torch.float32, device="cpu", layers: int | None = None,
             ids: Tensor | None = None) -> Transformer:
        """The checkpoint in this folder; its first `layers` layers, a head with the rows `ids`. Refusal if not ours."""
        return Transformer(fuse(shape_of(read_config(folder)), reader(folder), dtype, device, layers, ids))

    @staticmethod
    def random(shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float32, device="cpu") -> Transformer:
        """A decoder nobody trained."""
        return Transformer(random_weights(shape, seed, dtype, device))

    @property
    def context(self) -> int:
        return self.shape.context

    @property
    def vocab(self) -> int:
        return self.shape.vocab

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
        """The same weights and taps, an empty cache."""
        both = self.bidirectional if bidirectional is None else bidirectional
        return Transformer(self.weights, self.cache.taps, both, depth=self.depth)

    def first_layers(self, count: int) -> Transformer:
        """An independent model of the first layers, the same norm and head: a draft baseline. Weights are shared."""
        return Transformer(replace(self.weights, layers=self.weights.layers[:self.checked(count)]))

    def restricted(self, ids: Tensor) -> Transformer:
        """The same with a head of these rows alone, and an empty cache."""
        return Transformer(replace(self.weights, head=self.weights.head.rows(ids), ids=ids), self.cache.taps,
                           self.bidirectional, depth=self.depth)

    def exit(self, layer: int) -> Transformer:
        """A model on the same rows that stops after `layer` layers; the full one resumes its rows from there."""
        return Transformer(self.weights, bidirectional=self.bidirectional, cache=self.cache,
                           depth=self.checked(layer))

    def checked(self, layer: int) -> int:
        if not 0 < layer <= self.layers:
            raise ValueError(f"the model has {self.layers} layers, {layer} were asked for")
        return layer

    def tap(self, layers: tuple[int, ...]) -> None:
        """Chooses the residual streams kept for `features`; rows fed before are forgotten if the choice is new."""
        if not all(0 <= layer <= self.layers for layer in layers):
            raise ValueError(f"taps lie between 0 and {self.layers}, got {tuple(layers)}")
        if tuple(layers) != self.cache.taps:
            self.cache.reset(tuple(layers))

    def features(self, tokens: tuple[int, ...]) -> Tensor:
        """The taps [fed, taps, hidden] of exactly this context, without a forward; accepted nodes are in it.

        The last token may not have been fed yet; ValueError if more are missing. A view: it holds until the context
        goes back.
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
        known = self.known(tokens, draft)
        if known <= len(draft):
            self.extend(tokens, draft, known)
        logits = self.answer.logits[:1 + len(draft)]
        brief = brief_of(logits, self.weights.ids) if self.device.type == "cuda" else None
        return Scores(logits, self.weights.ids, brief)

    def known(self, tokens: tuple[int, ...], draft: Draft) -> int:
        """How many leading rows of the scores asked for were answered last time."""
        last = self.answer
        if last is None or last.tokens != tokens:
            return 0
        same = common_nodes(last.draft, draft)
        if self.bidirectional and not same == len(draft) == len(last.draft):
            return 0
        return 1 + same

    def extend(self, tokens: tuple[int, ...], draft: Draft, known: int) -> None:
        """Feeds what is missing for the rows from `known` on, and adds them to the answer."""
        cache, total = self.cache, len(tokens) + len(draft)
        cache.align(tokens, draft)
        if self.bidirectional:
            del cache.depth[len(tokens):]
        first = len(tokens) - 1 + known            # flat row of the first logits asked for
        if len(cache.depth) > first and cache.depth[first] >= self.depth:
            del cache.depth[first:]                # deep enough, but nobody kept its logits
        self.catch_up(len(tokens) - 1, CHUNK)
        logits = self.room(tokens, draft, known)
        x = self.run(total)
        with torch.inference_mode():
            logits[known:1 + len(draft)] = self.weights.head(self.normed(x[first - total:]))
        if self.bidirectional:
            del cache.depth[len(tokens):]

    def room(self, tokens: tuple[int, ...], draft: Draft, known: int) -> Tensor:
        """A buffer of logits that starts with the known rows; rows handed out earlier are never written again."""
        last, rows = self.answer, 1 + len(draft)
        if known and known == last.rows and rows <= len(last.logits):
            logits = last.logits
        else:
            wide = torch.float64 if self.dtype == torch.float64 else torch.float32
            logits = torch.empty(rows + (8 if known else 0), self.weights.head.out, dtype=wide, device=self.device)
            if known:
                logits[:known] = last.logits[:known]
        self.answer = Answer(tokens, draft, logits, rows)
        return logits

    def catch_up(self, stop: int, slack: int = 0) -> None:
        """Feeds the context up to row `stop` in chunks, unless at most `slack` rows of it are missing."""
        while stop - self.cache.shallow(self.depth) > slack:
            self.run(min(stop, self.cache.shallow(self.depth) + CHUNK))

    def run(self, stop: int) -> Tensor:
        """Takes all rows before `stop` through this model's layers; their residual stream [rows, hidden]."""
        cache, ahead = self.cache, len(self.cache.tokens)
        self.reserve(stop)
        start, at = cache.shallow(self.depth), min(stop, len(cache.depth))
        flat = cache.tokens[at:stop] + cache.draft.tokens[max(0, at - ahead):max(0, stop - ahead)]
        with torch.inference_mode():
            x = F.embedding(torch.tensor(flat, dtype=torch.long).to(self.device), self.weights.embedding)
            self.keep(x, 0, at)
            x = self.climb(x, start, at, stop)
            if cache.hidden is not None:
                cache.hidden[start:stop] = x
        cache.depth[start:stop] = [self.depth] * (stop - start)
        self.forwards, self.fed = self.forwards + 1, self.fed + len(flat)
        return x

    def climb(self, x: Tensor, start: int, at: int, stop: int) -> Tensor:
        """Embedded rows `at` to `stop` go through the layers; rows from `start` join where an early exit left them."""
        cache, level = self.cache, 0
        while True:
            upto = self.depth if at == start else cache.depth[at - 1]
            if len(x):
                x = self.through(x, level, upto, at, stop)
            level = upto
            if at == start:
                return x
            below = at
            while at > start and cache.depth[at - 1] == level:
                at -= 1
            x = torch.cat((cache.hidden[at:below], x))

    def through(self, x: Tensor, first: int, last: int, start: int, stop: int) -> Tensor:
        """Layers `first` to `last` for the rows from `start` to `stop`, whose columns end at `stop`."""
        cos, sin = self.angles(start, stop)
        block, full, plain = self.masks(start, stop)
        for i in range(first, last):
            kv = self.cache.kv[i]
            x = layer(x, self.weights.layers[i], self.shape, kv, start, stop, cos, sin, block, full, plain)
            self.keep(x, i + 1, start)
        return x

    def keep(self, x: Tensor, level: int, start: int) -> None:
        """Stores the stream of these rows where it is tapped."""
        for place, tap in enumerate(self.cache.taps):
            if tap == level:
                self.cache.features[start:start + len(x), place] = self.normed(x) if tap == self.layers else x

    def normed(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.shape.hidden,), self.weights.norm, self.shape.eps)

    def angles(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Rotary tables of these rows: a slice for a chain, gathered by depth for a tree."""
        cos, sin = self.rope
        ahead, draft = len(self.cache.tokens), self.cache.draft
        if stop <= ahead or draft.depths[-1] == len(draft):                # nodes of a chain follow each other
            return cos[start:stop], sin[start:stop]
        rows = list(range(start, ahead)) + [ahead - 1 + depth for depth in draft.depths[max(0, start - ahead):]]
        rows = torch.tensor(rows, device=self.device)
        return cos[rows], sin[rows]

    def masks(self, start: int, stop: int) -> tuple[Tensor | None, Tensor | None, bool]:
        """What these rows must not see, as a block for plain products, else widened to all columns; and which."""
        ahead, rows = len(self.cache.tokens), stop - start
        committed = max(0, min(stop, ahead) - start)
        parents = self.cache.draft.parents if stop > ahead else ()
        block = hidden_block(parents, committed, rows, self.bidirectional, self.dtype, self.device)
        if plainly(rows, self.dtype, self.device):
            return block, None, True
        return None, whole(block, rows, stop, self.shape.group), False

    def reserve(self, rows: int) -> None:
        """Room in the cache, and angles for it."""
        self.cache.reserve(rows, self.depth < self.layers)
        if len(self.rope[0]) < self.cache.capacity:
            self.rope = rope_table(self.shape, self.cache.capacity, self.dtype, self.device)


def layer(x: Tensor, w: Layer, shape: Shape, kv: Tensor, start: int, stop: int, cos: Tensor, sin: Tensor,
          block: Tensor | None, full: Tensor | None, plain: bool) -> Tensor:
    """One decoder layer over rows x [rows, hidden]; writes their keys and values to kv[:, :, start:stop]."""
    rows, heads, d = len(x), shape.heads, shape.head_dim
    qkv = w.qkv(scaled(x, shape.eps)).view(rows, heads + 2 * shape.kv_heads, d)
    turned = qkv[:, :heads + shape.kv_heads]
    if w.q_norm is not None:
        turned[:, :heads] = F.rms_norm(turned[:, :heads], (d,), w.q_norm, shape.eps)
        turned[:, heads:] = F.rms_norm(turned[:, heads:], (d,), w.k_norm, shape.eps)
    other = turned.roll(d // 2, -1)
    turned.mul_(cos).addcmul_(other, sin)
    kv[:, :, start:stop] = qkv[:, heads:].view(rows, 2, shape.kv_heads, d).permute(1, 2, 0, 3)
    seen = attend(qkv[:, :heads], kv[0, :, :stop], kv[1, :, :stop], block, full, plain)
    x = w.out(seen).add_(x)
    gate, up = w.gate_up(scaled(x, shape.eps)).chunk(2, -1)
    return w.down(F.silu(gate).mul_(up)).add_(x)


def scaled(x: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean x^2 + eps) per row: the norm without its weight.

    Beside its own negative a row has mean zero, so the fused layer norm of both is the root mean square norm of each,
    rounded once; it is faster than `F.rms_norm`, which torch puts together from single steps on a CPU.
    """
    hidden = x.shape[-1]
    return F.layer_norm(torch.cat((x, -x), -1), (2 * hidden,), None, None, eps)[:, :hidden].contiguous()


def brief_of(logits: Tensor, ids: Tensor | None, k: int = 8) -> Brief:
    """Top k, log-sum-exp and entropy of every row, brought to the host in one transfer."""
    value, column = top_by_blocks(logits, min(k, logits.shape[1]))
    lse = torch.logsumexp(logits, -1)
    entropy = lse - ((logits - lse[:, None]).exp() * logits).sum(-1)
    column = column if ids is None else ids.to(column.device)[column]
    packed = torch.cat((value.double(), column.double(), lse[:, None].double(), entropy[:, None].double()), 1).cpu()
    value, column = packed[:, :value.shape[1]], packed[:, value.shape[1]:-2].long()
    return Brief(column, value.to(logits.dtype), tuple(range(len(logits))), tuple(packed[:, -2].tolist()),
                 tuple(packed[:, -1].clamp(min=0).tolist()))
