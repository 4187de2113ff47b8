"""Caches of EAGLE heads and the drafts that were captured on them: both go from decode to decode (`cache_pool.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdec_lib.heads.captured_chain import CapturedChain
from specdec_lib.heads.captured_draft import CapturedDraft, Place, room_for_text, width_of
from specdec_lib.heads.captured_tree import CapturedTree, grown
from specdec_lib.heads.eagle_tree import Candidates, Growth
from specdec_lib.models.device import to_host
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.cache_pool import ROWS
from specdec_lib.models.llama.cuda_graph import columns_for
from specdec_lib.models.llama.logits_cache import LogitsCache
from specdec_lib.models.llama.row_stats import unpacked
from specdec_lib.scores import Scores
from specdec_lib.types import ROOT, Draft

if TYPE_CHECKING:
    from specdec_lib.heads.eagle import EagleHead
    from specdec_lib.heads.eagle_network import EagleNetwork


class DraftMemory:
    """A cache of a head and the chains and trees that were captured on it."""

    def __init__(self, weights: EagleNetwork):
        self.weights, embedding = weights, weights.embedding
        capacity = max(512, min(ROWS, 1 << (weights.shape.context - 1).bit_length()))
        self.cache = KVCache(weights.shape, 1, embedding.dtype, embedding.device, capacity=capacity)
        self.cache.hidden = self.cache.stream()
        self.rope: tuple[Tensor, Tensor] | None = None           # of the whole cache, made by the first head
        self.chains: dict[tuple[int, Place], CapturedChain] = {}
        self.trees: dict[tuple[Growth, Place], CapturedTree] = {}
        self.last: CapturedDraft | None = None     # that ran

    def chain(self, head: EagleHead, tokens: tuple[int, ...], count: int) -> Scores:
        """See `EagleHead.chain`."""
        rows, late = self.begin(head, tokens, count)
        place = self.place(head, len(tokens) - 1 + max(width_of(count), count))
        if (count, place) not in self.chains:
            self.chains[count, place] = CapturedChain(count, place, self.weights, self.cache, head.rope)
        logits, packed = self.run(self.chains[count, place], head, tokens, rows, late)
        stats = unpacked(to_host(packed), logits.dtype)
        head.forwards, head.fed = head.forwards + count - 1, head.fed + count - 1
        return Scores(logits[:, :len(head.ids)], head.ids, stats)

    def tree(self, head: EagleHead, tokens: tuple[int, ...], growth: Growth) -> Candidates:
        """See `EagleHead.tree`. A tree of another size, or with another `least`, runs in the same graph.

        Nothing is counted: the head alone scores. Every candidate that can be chosen is found, with others beside.
        """
        rows, late = self.begin(head, tokens, growth.depth)
        nodes, shape = growth.width * (growth.depth - 1), growth._replace(size=0, least=0.0, counts=None, worth=())
        place = self.place(head, len(tokens) - 1 + max(width_of(growth.depth), nodes))
        if (shape, place) not in self.trees:
            self.trees[shape, place] = CapturedTree(shape, place, self.weights, self.cache, head.rope)
        (pool,) = self.run(self.trees[shape, place], head, tokens, rows, late, growth.size)
        found = grown(to_host(pool).numpy(), growth)
        head.forwards, head.fed = head.forwards + depth_of(found, -1) - 1, head.fed + found.asked()
        return found

    def begin(self, head: EagleHead, tokens: tuple[int, ...], count: int) -> tuple[int, Tensor | None]:
        """The committed rows that a graph takes in, and their features; others, such as a prompt's, are computed."""
        head.align(tokens, Draft())
        groups = list(head.catch_up(tokens))
        late = groups.pop().taps if groups and fits(groups[-1].taps, width_of(count)) else None
        for rows in groups:
            head.run(rows)
        head.answers = LogitsCache()
        return 0 if late is None else len(late), late

    def place(self, head: EagleHead, stop: int) -> Place:
        """What a draft on rows before `stop` is captured for, once there is room.

        A cache that grew lies elsewhere, so the drafts on it are dropped.
        """
        head.reserve(stop)
        if self.rope is not head.rope:             # it grows with the cache
            self.chains.clear()
            self.trees.clear()
            self.rope = head.rope
        joins = head.vocabulary.rows is not None
        return Place(columns_for(stop), room_for_text(len(head.vocabulary.added)) if joins else 0, len(head.levels))

    def run(self, draft: CapturedDraft, head: EagleHead, tokens: tuple[int, ...], rows: int, late: Tensor | None,
            *more: int) -> tuple[Tensor, ...]:
        """One launch of this draft behind the context, of which the last `rows` rows are computed from `late`."""
        self.last = draft
        with torch.inference_mode():
            out = draft(tokens[len(tokens) - rows:], late, len(tokens) - 1, head.vocabulary.added, *more)
        if rows:
            head.count(rows)
        return out


def fits(taps: Tensor | None, width: int) -> bool:
    """Whether a graph of this width takes in these rows."""
    return taps is not None and len(taps) <= width


def depth_of(pool: Candidates, node: int) -> int:
    """How deep this candidate lies: 1 below the root."""
    depth, parent = 1, pool[node].parent
    while parent != ROOT:
        depth, parent = depth + 1, pool[parent].parent
    return depth
