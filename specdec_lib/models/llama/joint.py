"""One forward for several sequences: their rows go through the weights together, each attends over its own cache.

A sequence is a `Transformer` of its own on shared weights, so its cache aligns itself and keeps taps and logits as in a
decode alone, and drafts may be chains or trees of any size. Weights are read once for all sequences; attention is
called once a sequence and layer, which costs a CPU little and a GPU one launch each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.device import to_device
from specdec_lib.models.llama.decoder import CHUNK, Transformer
from specdec_lib.models.llama.forward import (
    LayerView,
    after_attention,
    attended,
    before_attention,
    cached_rows,
    columns,
    keep_taps,
)
from specdec_lib.models.llama.row_stats import row_stats_of, split
from specdec_lib.models.llama.weights import LlamaWeights
from specdec_lib.scores import Scores
from specdec_lib.types import Draft

Asked = tuple[Transformer, tuple[int, ...], Draft]       # a sequence, its context and the draft to be scored


class JointPart(NamedTuple):
    """The rows of one sequence in a forward: from `start` to `stop` of its cache, at `where` among all that are fed."""

    model: Transformer
    where: slice
    start: int
    stop: int
    view: LayerView


def member(lm: Transformer) -> Transformer:
    """The same weights and taps with an empty cache, for a place in a batch: captured steps hold one sequence alone."""
    return Transformer(lm.weights, lm.cache.taps, static=False)


def score_together(asked: Sequence[Asked]) -> list[Scores]:
    """What each of these sequences, by itself, would score for its context and draft: in one forward.

    ValueError for sequences that cannot share one: the same one twice, other weights, early exits, captured steps.
    """
    refuse_strangers([model for model, _, _ in asked])
    open_ = []
    for model, tokens, draft in asked:
        if not tokens:
            raise ValueError("a model needs at least one token of context")
        known = model.answers.known(tokens, draft)
        if known <= len(draft):
            open_.append((model, tokens, draft, known))
    if open_:
        parts = parts_of(open_)
        x = through_together(open_[0][0].weights, parts)
        keep_logits(x, open_, parts)
    return [Scores(model.answers.rows(draft), model.ids, model.answers.stats(draft)) for model, _, draft in asked]


def refuse_strangers(models: Sequence[Transformer]) -> None:
    """Raises ValueError where these sequences cannot share a forward."""
    if len({id(model.cache) for model in models}) < len(models):
        raise ValueError("a sequence stands in a batch once: two of these share a cache")
    for model in models:
        if model.weights is not models[0].weights:
            raise ValueError("sequences share a forward on the same weights alone")
        if not shares_forwards(model):
            raise ValueError("a forward is shared by whole causal models without captured steps: take `member`")


def shares_forwards(model: Transformer) -> bool:
    """Whether sequences of this model can share a forward: it is whole, causal and without captured steps."""
    return not (model.static or model.bidirectional or model.head is not None or model.depth != model.layers)


def parts_of(asked: Sequence[tuple[Transformer, tuple[int, ...], Draft, int]]) -> list[JointPart]:
    """The rows that each sequence lacks; a long gap in a context is fed alone, before the forward that is shared."""
    parts, at = [], 0
    for model, tokens, draft, known in asked:
        model.cache.align(tokens, draft)
        rows, first, stop = model.cache.rows, len(tokens) - 1 + known, len(tokens) + len(draft)
        del rows.depth[first:]                     # their logits were not kept
        if rows.shallow(model.depth) < len(rows):
            raise ValueError("a sequence whose rows have left the model early cannot share a forward")
        model.catch_up(len(tokens) - 1, CHUNK)
        start = len(rows)
        model.reserve(stop)
        parts.append(JointPart(model, slice(at, at + stop - start), start, stop, model.view(start, stop)))
        at += stop - start
    return parts


@torch.inference_mode()
def through_together(weights: LlamaWeights, parts: Sequence[JointPart]) -> Tensor:
    """Hidden states [rows of all parts, hidden] after all layers; every cache gets its own keys, values and taps."""
    fed = [token for part in parts for token in part.model.cache.rows.flat(part.start, part.stop)]
    x = F.embedding(to_device(fed, weights.device), weights.embedding)
    for part in parts:
        keep_taps(x[part.where], weights, part.model.cache, part.view, 0)
    own = [cached_rows(part.model.cache, part.view.paths, part.view.where) for part in parts if part.view.paths]
    if weights.together is not None and len(own) == len(parts):
        x = weights.together(x, own, 0, len(weights.layers))
        for part in parts:                         # the last one is normed
            keep_taps(x[part.where], weights, part.model.cache, part.view, len(weights.layers))
    else:
        x = layer_by_layer(x, weights, parts)
    for part in parts:
        part.model.ran(x[part.where], part.start, part.start, part.stop)
    return x


def layer_by_layer(x: Tensor, weights: LlamaWeights, parts: Sequence[JointPart]) -> Tensor:
    """What all layers make of x [rows of all parts, hidden]; the caches get its keys, values and taps."""
    shape = weights.shape
    levels = zip(weights.layers, *(columns(part.model.cache.kv, part.view) for part in parts), strict=True)
    for level, (w, *held) in enumerate(levels, 1):
        qkv = before_attention(x, w, shape).view(len(x), -1, shape.head_dim)
        seen = [attended(qkv[part.where], w, shape, kv, part.view) for part, kv in zip(parts, held, strict=True)]
        x = after_attention(x, torch.cat(seen), w, shape)
        for part in parts:
            keep_taps(x[part.where], weights, part.model.cache, part.view, level)
    return x


def keep_logits(x: Tensor, asked: Sequence[tuple[Transformer, tuple[int, ...], Draft, int]],
                parts: Sequence[JointPart]) -> None:
    """Reads the logits of the rows that were asked for, in one product, and keeps each sequence's own."""
    counts = [1 + len(draft) - known for _, _, draft, known in asked]
    rows = torch.cat([x[part.where][-count:] for part, count in zip(parts, counts, strict=True)])
    first = parts[0].model
    logits = first.read(rows)
    stats = split(row_stats_of(logits, first.ids), counts) if first.tells else [None] * len(counts)
    for (model, tokens, draft, known), own, told in zip(asked, logits.split(counts), stats, strict=True):
        model.answers.keep(tokens, draft, known, own, told)
