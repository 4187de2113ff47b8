"""The tree of EAGLE-2 as one launch (`captured_draft.py`): levels are scored, ranked and chosen on the device.

Source: Li et al. 2024 (EAGLE-2). It is the pool of `grow_candidates` (`what/eagle2.py`) in fixed shapes: every level
has `width` rows, and where fewer nodes go on the rest are padding, whose children have the score -inf and are dropped.
All levels are computed; those behind the end of the growth are dropped on the host, which changes none before it.
"""

from __future__ import annotations

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
    nodes: Tensor                                  # [rows] their numbers in the pool, or ROOT
    scores: Tensor                                 # [rows] -inf: padding
    seen: Tensor                                   # [rows, nodes] 1 where a row sees the row of a node


class CapturedTree(CapturedDraft):
    """The pool of a tree: candidates [pool, 8] level by level, best first in each, in double precision.

    The numbers of a candidate are those of `eagle_tree.h`, and the row of its parent in the level before. `more` is how
    many nodes the final tree may have.
    """

    def __init__(self, growth: Growth, place: Place, weights: EagleNetwork, cache: KVCache,
                 rope: tuple[Tensor, Tensor]):
        self.growth = growth
        super().__init__(growth.depth, growth.width * (growth.depth - 1), place, weights, cache, rope, more=1)
        self.end = to_device(sorted(growth.end), self.device)

    def drafted(self, x: Tensor, vocabulary: JoinedVocabulary, tables: DraftTables, more: Tensor) -> tuple[Tensor, ...]:
        one = torch.zeros(1, dtype=torch.float64, device=self.device)
        seen = torch.zeros(1, self.nodes, dtype=torch.uint8, device=self.device)
        rows, pool = TreeRows(x, one.long() + ROOT, one, seen), []
        for depth in range(self.growth.depth):
            stats = packed_stats(self.logits(rows.x, vocabulary), vocabulary.ids, max(TOP, self.growth.width))
            pool.append(children(stats, rows, self.growth))
            if depth + 1 < self.growth.depth:
                rows = self.next_level(pool, rows, tables, depth, more)
        return (torch.cat(pool),)

    def next_level(self, pool: list[Tensor], above: TreeRows, tables: DraftTables, depth: int,
                   size: Tensor) -> TreeRows:
        """The rows of the best candidates of the last level that may have children."""
        width, last, start = self.growth.width, pool[-1], sum(map(len, pool[:-1]))
        may = ranks_before(torch.cat([level[:, SCORE] for level in pool]), start) < size - 1
        may &= (last[:, :1] != self.end).all(1) & (last[:, SCORE] > -inf)
        chosen = (~may).byte().argsort(stable=True)[:width]      # those that may, best first, then padding
        parents = last[chosen, ROW].long()
        place = depth * width + self.column(width)
        seen = above.seen[parents] | (self.column(self.nodes) == place[:, None]).byte()
        x = self.layer(above.x[parents], last[chosen, 0].long(), self.level_view(tables, depth, seen))
        scores = last[chosen, SCORE].masked_fill(~may[chosen], -inf)
        return TreeRows(x, start + chosen, scores, seen)

    def level_view(self, tables: DraftTables, depth: int, seen: Tensor) -> LayerView:
        """The view of a level's rows, `depth` positions behind the context, which see it and the nodes of `seen`."""
        width, nodes = self.growth.width, tables.where[self.width:]
        base = nodes[:1]
        whole = (self.column(self.columns) < base).byte().repeat(width, 1).index_copy_(1, nodes, seen)
        hidden = torch.zeros(whole.shape, dtype=tables.hidden.dtype, device=self.device)
        hidden.masked_fill_(whole == 0, -inf)
        cos, sin = (table[base + depth].expand(width, -1) for table in self.rope)
        rows = DraftTables(nodes[depth * width:(depth + 1) * width], cos, sin, hidden)
        return rows.view(slice(0, width), self.group)


def children(stats: Tensor, rows: TreeRows, growth: Growth) -> Tensor:
    """The best children [rows * width, 8] of these rows, best first, from the packed statistics [rows, 2k + 2]."""
    k = stats.shape[1] // 2 - 1
    logits, ids, lse, entropy = stats[:, :k], stats[:, k:-2], stats[:, -2:-1], stats[:, -1:]
    own, sharp = lse, growth.sharpness
    if sharp != 1:                                 # over the best tokens alone, see `what/eagle2.py: log_chances`
        own = sharp * logits[:, :1] + (sharp * (logits - logits[:, :1])).exp().sum(1, keepdim=True).log()
    logp = (sharp * logits - own).clamp(max=0)[:, :growth.width]
    best = (logits[:, :2] - lse).clamp(max=0).exp()
    row = torch.arange(len(stats), device=stats.device).double()
    columns = (ids[:, :growth.width], rows.nodes[:, None].double(), rows.scores[:, None] + logp, logp.exp(),
               best[:, :1], best[:, 1:], entropy.clamp(min=0), row[:, None])
    found = torch.stack([column.expand(-1, growth.width) for column in columns], -1).flatten(0, 1)
    return found[found[:, SCORE].argsort(descending=True, stable=True)]


def ranks_before(scores: Tensor, start: int) -> Tensor:
    """How many candidates of the pool rank before each from `start` on: better ones, and equal earlier ones."""
    place = torch.arange(len(scores), device=scores.device)
    own, mine = scores[start:, None], place[start:, None]
    return ((scores > own) | (scores == own) & (place < mine)).sum(1)


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
