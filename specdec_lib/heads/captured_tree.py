"""The tree of EAGLE-2 as one launch (`captured_draft.py`): levels are scored, ranked and chosen on the device.

Source: Li et al. 2024 (EAGLE-2). It is the pool of `grow_candidates` (`what/eagle2.py`) in fixed shapes: every level
has `width` rows, and where fewer nodes go on the rest are padding, whose children have the score -inf and are dropped.
All levels are computed; those behind the end of the growth are dropped on the host, which changes none before it.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specdec_lib.heads.captured_draft import CapturedDraft, DraftTables, JoinedVocabulary, Place
from specdec_lib.heads.eagle_network import EagleNetwork
from specdec_lib.heads.eagle_tree import NUMBERS, Candidates, Growth
from specdec_lib.models.device import to_device
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.forward import LayerView
from specdec_lib.models.llama.row_stats import TOP, packed_stats
from specdec_lib.types import ROOT

PARENT, SCORE, PROB, ROW = 1, 2, 3, NUMBERS         # columns of a candidate; the last is its parent's row
WIDEST = 64                                        # beyond it ranking all candidates of a level takes too long


class TreeRows(NamedTuple):
    """The rows of one level of the tree."""

    x: Tensor                                      # [rows, hidden] outputs
    nodes: Tensor                                  # [rows] their numbers in the pool, or ROOT; doubles, as the scores
    scores: Tensor                                 # [rows] -inf: padding
    hidden: Tensor                                 # [rows, nodes] 0 where a row sees the row of a node, else -inf


class CapturedTree(CapturedDraft):
    """The pool of a tree: candidates [pool, 8] level by level, best first in each, in double precision.

    The numbers of a candidate are those of `eagle_tree.h`, and the row of its parent in the level before. `more` is how
    many nodes the final tree may have. The device computes little and starts many kernels, so what never changes is
    made once, here.
    """

    def __init__(self, growth: Growth, place: Place, weights: EagleNetwork, cache: KVCache,
                 rope: tuple[Tensor, Tensor]):
        self.growth, width = growth, growth.width
        super().__init__(growth.depth, width * (growth.depth - 1), place, weights, cache, rope, more=1)
        self.end = to_device(sorted(growth.end), self.device)
        self.starts = [0, *(width + width * width * depth for depth in range(growth.depth))]     # of levels in the pool
        self.number = torch.arange(self.starts[-1], dtype=torch.float64, device=self.device)
        self.after = self.column(width * width) + 1                # 1 more than those before it in its level
        unseen = torch.full((1, self.nodes), -inf, dtype=weights.embedding.dtype, device=self.device)
        self.itself = unseen[:, :width].repeat(width, 1).fill_diagonal_(0)
        zero = torch.zeros(1, dtype=torch.float64, device=self.device)
        self.never = zero - inf
        self.root = TreeRows(cache.kv, zero + ROOT, zero, unseen)  # its x is that of the call

    def drafted(self, x: Tensor, vocabulary: JoinedVocabulary, tables: DraftTables, more: Tensor) -> tuple[Tensor, ...]:
        rows, width, left = self.root._replace(x=x), self.growth.width, more - self.after
        pool = torch.empty(self.starts[-1], NUMBERS + 1, dtype=torch.float64, device=self.device)
        full = tables.hidden[self.width:self.width + 1].repeat(self.group * width, 1) if self.nodes else tables.hidden
        for depth, (start, stop) in enumerate(pairwise(self.starts)):
            stats = packed_stats(self.logits(rows.x, vocabulary), vocabulary.ids, max(TOP, width))
            found = children(stats, rows, self.number[:len(stats)], self.growth)
            torch.index_select(found, 0, found[:, SCORE].argsort(descending=True, stable=True), out=pool[start:stop])
            if stop < len(pool):
                rows = self.next_level(pool[:stop], start, rows, left, (depth, tables, full))
        return (pool,)

    def next_level(self, pool: Tensor, start: int, above: TreeRows, left: Tensor,
                   place: tuple[int, DraftTables, Tensor]) -> TreeRows:
        """The rows of the best candidates of the last level, from `start` on, that may have children.

        `left` says how many of earlier levels may rank before each, one more: those of its own lie in order.
        """
        width, last, (depth, tables, full) = self.growth.width, pool[start:], place
        scores, parts = last[:, SCORE], slice(depth * width, (depth + 1) * width)
        may = ranks_among(pool[:start, SCORE], scores, left[:len(last)])
        if len(self.end):
            may &= (last[:, :1] != self.end).all(1)
        eligible = torch.where(may, scores, self.never)
        best, chosen = (part[:width] for part in eligible.sort(descending=True, stable=True))
        picked = last[chosen].long()
        tokens, parents = picked[:, 0], picked[:, ROW]
        hidden = above.hidden[parents]
        hidden[:, parts] = self.itself
        where = tables.where[self.width:]
        full.view(self.group, width, -1).index_copy_(2, where, hidden.expand(self.group, -1, -1))
        cos, sin = (table[self.width + depth].expand(width, -1) for table in (tables.cos, tables.sin))
        view = LayerView(where[parts], self.columns, cos, sin, full=full, products=True)
        return TreeRows(self.layer(above.x[parents], tokens, view), self.number[start:][chosen], best, hidden)


def ranks_among(earlier: Tensor, scores: Tensor, left: Tensor) -> Tensor:
    """Whether fewer than `left` of the earlier levels' scores rank before each of these; equal earlier ones do."""
    return (earlier >= scores[:, None]).sum(1) < left


def children(stats: Tensor, rows: TreeRows, number: Tensor, growth: Growth) -> Tensor:
    """The best children [rows * width, 8] of these rows, row by row, from the packed statistics [rows, 2k + 2].

    `number` [rows] counts the rows from 0.
    """
    k, width, sharp = stats.shape[1] // 2 - 1, growth.width, growth.sharpness
    logits, ids, lse, entropy = stats[:, :k], stats[:, k:-2], stats[:, -2:-1], stats[:, -1:]
    own = (logits - lse).clamp_(max=0)
    chances = own.exp()
    best = chances[:, :2]
    if sharp != 1:                                 # over the best tokens alone, see `what/eagle2.py: log_chances`
        total = sharp * logits[:, :1] + (sharp * (logits - logits[:, :1])).exp().sum(1, keepdim=True).log()
        own = (sharp * logits - total).clamp_(max=0)
        chances = own.exp()
    columns = (ids, rows.nodes[:, None], rows.scores[:, None] + own, chances, best[:, :1], best[:, 1:],
               entropy.clamp(min=0), number[:, None])
    return torch.stack([column[:, :width].expand(-1, width) for column in columns], -1).flatten(0, 1)


def grown(rows: np.ndarray, growth: Growth) -> Candidates:
    """The pool [candidates, 8] without padding, and without what lies behind the level where the growth ends."""
    width, there, at, stop = growth.width, rows[:, SCORE] > -inf, 0, 0
    for depth in range(growth.depth):
        first, at = at, at + (width if depth == 0 else width * width)
        if not there[first]:                       # padding lies behind the others of its level
            break
        stop = at
        if chance_of(rows, first) < growth.least:
            break
    kept, places = rows[:stop][there[:stop]], there.cumsum() - 1
    parents = kept[:, PARENT].astype(int)
    kept[:, PARENT] = np.where(parents == ROOT, ROOT, places[parents])
    return Candidates(kept[:, :NUMBERS].ravel().tolist())


def chance_of(rows: np.ndarray, node: int) -> float:
    """The product of the probabilities on the path to this candidate."""
    chances: list[float] = []
    while node != ROOT:
        chances.append(float(rows[node, PROB]))
        node = int(rows[node, PARENT])
    return prod(reversed(chances))
