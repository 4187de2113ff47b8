"""An EAGLE-3 head: one decoder layer that drafts from the target's features, with a key-value cache of its own.

Source: Li et al. 2025 (EAGLE-3). Row t concatenates the feature of position t with the embedding of the token after it
and predicts what follows that token. Rows of committed tokens use the target's features; a node's row uses its parent's
output instead, and is dropped when the context grows, since the target then has the true feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.base import (
    PerTarget,
    Target,
    TargetWeights,
    checked_tensors,
    draft_vocabulary,
    new_features,
    output_rows,
    tap_levels,
)
from specdec_lib.models.llama.attention import hidden_block
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.forward import LayerView, columns, layer_after, scaled, view_of
from specdec_lib.models.llama.logits_cache import LogitsCache
from specdec_lib.models.llama.packed_linear import PackedLinear
from specdec_lib.models.llama.row_stats import row_stats_of
from specdec_lib.models.llama.weights import LayerWeights
from specdec_lib.scores import Scores
from specdec_lib.types import Draft


@dataclass(frozen=True)
class EagleWeights:
    """The tensors of a head, packed for one target."""

    fc: PackedLinear                               # concatenated taps -> hidden
    layer: LayerWeights                            # its qkv reads embedding and feature, concatenated
    norm: Tensor                                   # [hidden], before the head
    head: PackedLinear                             # the target's output rows of `ids`
    ids: Tensor                                    # [rows] the draft vocabulary

    @staticmethod
    def pack(state: Mapping[str, Tensor], taps: int, target: TargetWeights) -> EagleWeights:
        """From a checkpoint's tensors, for `taps` tapped layers. Refusal where they do not fit the target."""
        shape, h = target.shape, target.shape.hidden
        heads = shape.heads * shape.head_dim
        names = {"fc": (h, taps * h), "qkv": (heads + 2 * shape.kv_heads * shape.head_dim, 2 * h), "out": (h, heads),
                 "gate_up": (-1, h), "down": (h, -1), "norm": (h,)}
        put = checked_tensors(state, names, target)
        ids = draft_vocabulary(state, target)
        layer = LayerWeights(PackedLinear(put["qkv"]), PackedLinear(put["out"]), PackedLinear(put["gate_up"]),
                             PackedLinear(put["down"]))
        return EagleWeights(PackedLinear(put["fc"]), layer, put["norm"], output_rows(target, ids), ids)


class EagleHead:
    """`head(tokens, draft)` returns scores over its vocabulary `ids`; `forwards` counts passes, `fed` rows.

    It taps the target when made, so make it before the prompt is fed. Each call computes missing rows from
    `target.features`, however many rounds passed since the last call; it reads only features before the last token.
    """

    def __init__(self, state: Mapping[str, Tensor], taps: Sequence[int], target: Target,
                 packed: EagleWeights | None = None):     # packed earlier from the same state
        tap_levels(target, taps)
        self.levels = tuple(taps)
        self.target, self.shape, self.embedding = target, target.shape, target.weights.embedding
        self.weights = EagleWeights.pack(state, len(taps), target.weights) if packed is None else packed
        self.cache = KVCache(self.shape, 1, target.dtype, target.device)
        self.cache.hidden = self.cache.stream()    # the output of every row; a node's row reads its parent's
        self.rope = rope_table(self.shape, self.cache.capacity, target.dtype, target.device)
        self.first: tuple[int, ...] = ()           # no row holds the first token, so it is stored here
        self.answers = LogitsCache()
        self.forwards = self.fed = 0

    @property
    def ids(self) -> Tensor:
        return self.weights.ids

    @property
    def hidden(self) -> Tensor:
        """The output [capacity, hidden] of every row."""
        assert self.cache.hidden is not None       # made with the cache
        return self.cache.hidden

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        """Row 0 after the context, row i + 1 after node i. ValueError for fewer than two tokens: no feature yet."""
        if len(tokens) < 2:
            raise ValueError("an EAGLE head reads the feature before the last token, so it needs two tokens")
        known = self.answers.known(tokens, draft)
        if known <= len(draft):
            self.align(tokens, draft)
            self.catch_up(tokens)
            self.go_down(len(tokens) - 1, draft)
            self.answers.keep(tokens, draft, known, self.score(len(tokens) - 2 + known, len(tokens) - 1 + len(draft)))
        logits = self.answers.rows(draft)
        return Scores(logits, self.ids, row_stats_of(logits, self.ids) if logits.is_cuda else None)

    def align(self, tokens: tuple[int, ...], draft: Draft) -> None:
        """Keeps the rows of this context's tokens, and nodes only where the context is that of the last call."""
        rows = self.cache.rows
        if self.first != tokens[:1]:
            del rows.depth[:]
        if rows.tokens != tokens[1:]:
            del rows.depth[len(rows.tokens):]
        self.first = tokens[:1]
        self.cache.align(tokens[1:], draft)

    def catch_up(self, tokens: tuple[int, ...]) -> None:
        """Computes missing rows of committed tokens from the target's features of the tokens before them."""
        for at, taps in new_features(self.target, tokens, len(self.cache.rows), self.levels):
            with torch.inference_mode():
                g = scaled(taps.reshape(-1, self.shape.hidden), self.shape.eps).view(len(taps), -1)
                g = self.weights.fc(g)
            self.run(g, at)

    def go_down(self, base: int, draft: Draft) -> None:
        """Computes missing rows of nodes, as many at once as have their parents' rows: a level of a tree."""
        at = len(self.cache.rows) - base           # nodes whose rows are computed
        while at < len(draft):
            stop = next((node for node in range(at, len(draft)) if draft.parents[node] >= at), len(draft))
            parents = slice(base + at - 1, base + at)
            if stop - at > 1 or draft.parents[at] != at - 1:
                parents = torch.tensor([base + parent for parent in draft.parents[at:stop]], device=self.ids.device)
            self.run(self.hidden[parents], base + at)
            at = stop

    def run(self, g: Tensor, start: int) -> None:
        """Computes rows from `start` on into the cache from their features g [rows, hidden]; stores their outputs."""
        rows, stop = self.cache.rows, start + len(g)
        self.cache.reserve(stop)
        if len(self.rope[0]) < self.cache.capacity:
            self.rope = rope_table(self.shape, self.cache.capacity, g.dtype, g.device)
        view, layer = self.view(start, stop), self.weights.layer
        with torch.inference_mode():
            following = F.embedding(torch.tensor(rows.flat(start, stop)).to(g.device), self.embedding)
            pair = torch.cat((scaled(following, self.shape.eps), scaled(g, self.shape.eps)), -1)
            (kv,) = columns(self.cache.kv, view)
            self.hidden[start:stop] = layer_after(g, layer.qkv(pair), layer, self.shape, kv, view)
        rows.depth += [1] * len(g)
        self.forwards, self.fed = self.forwards + 1, self.fed + len(g)

    def score(self, start: int, stop: int) -> Tensor:
        """Logits [rows, len(ids)] of the token after each of these rows."""
        with torch.inference_mode():
            x = F.rms_norm(self.hidden[start:stop], (self.shape.hidden,), self.weights.norm, self.shape.eps)
            return self.weights.head(x)

    def view(self, start: int, stop: int) -> LayerView:
        """Angles and mask of these rows, which are all committed or all nodes."""
        rows, (cos, sin) = self.cache.rows, self.rope
        ahead, count = len(rows.tokens), stop - start
        where: slice | Tensor = slice(start, stop)
        if not rows.chain(stop):
            where = torch.tensor([rows.position(row) for row in range(start, stop)], device=self.ids.device)
        parents = rows.draft.parents[:max(0, stop - ahead)]
        block = hidden_block(parents, 0 if parents else count, count, False, self.embedding.dtype, self.ids.device)
        return view_of(slice(start, stop), cos[where], sin[where], block, self.shape.group, self.cache.capacity)


PACKED = PerTarget(lambda checkpoint, target: EagleWeights.pack(checkpoint.state, len(checkpoint.meta["taps"]), target))


def eagle_head(checkpoint, target: Target) -> EagleHead:
    """The head of a loaded checkpoint on this target's cache; its weights are packed once for all decodes."""
    taps = tuple(checkpoint.meta["taps"])
    tap_levels(target, taps)                       # refused first if the target keeps no features
    return EagleHead(checkpoint.state, taps, target, PACKED(checkpoint, target.weights))
