"""The greedy chain of an EAGLE head as one launch: its shapes and addresses never change, so a CUDA graph holds it.

One graph takes in the last committed tokens, from the target's features, and then drafts token after token. Its numbers
travel in one copy from pinned memory, the features in another; the statistics of all rows come back in one transfer.
Rows of committed tokens are padded to a fixed width. Padding is written behind the last of them, where the chain and
later rows overwrite it, and no row sees it. The tokens of the text that joined the draft vocabulary are an input, too:
the graph gathers their output rows, and the columns of its unused room have the logit `NEVER`.
"""

from __future__ import annotations

import gc
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.draft_vocabulary import NEVER
from specdec_lib.models.device import to_host
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.cache_pool import ROWS
from specdec_lib.models.llama.cuda_graph import CapturedWork, columns_for
from specdec_lib.models.llama.forward import LayerView, attended, columns
from specdec_lib.models.llama.logits_cache import LogitsCache
from specdec_lib.models.llama.row_stats import packed_stats, unpacked
from specdec_lib.scores import Scores
from specdec_lib.types import Draft

if TYPE_CHECKING:
    from specdec_lib.heads.eagle import EagleHead
    from specdec_lib.heads.eagle_network import EagleNetwork

NARROWEST = 8                                      # rows of committed tokens that every graph takes in
ROOM = 256                                         # tokens of the text of the smallest graph: few texts need a second


def width_of(count: int) -> int:
    """Rows of committed tokens that a chain of `count` tokens takes in: as many as a whole chain and one token add."""
    return max(NARROWEST, 1 << count.bit_length())


def room_for_text(added: int) -> int:
    """The smallest power of two of columns that holds so many tokens of the text, so that few chains are captured."""
    return max(ROOM, 1 << (added - 1).bit_length())


class ChainTables(NamedTuple):
    """Of every row of the graph its place in the cache, its angles, and 0 or -inf for each column."""

    where: Tensor                                  # [rows]
    cos: Tensor                                    # [rows, head_dim]
    sin: Tensor
    hidden: Tensor                                 # [rows, columns]

    def view(self, part: slice, group: int) -> LayerView:
        """The view of these rows; a mask row is repeated for the query heads that share a key head."""
        where, cos, sin, hidden = (table[part] for table in self)
        stop = hidden.shape[1]
        full = hidden.expand(group, -1, -1).reshape(-1, stop)
        return LayerView(where, stop, cos, sin, full=full, products=True)


class CapturedChain(CapturedWork):
    """The chain of `count` tokens over the first `columns` rows of a cache, with room for `room` tokens of the text."""

    def __init__(self, count: int, columns: int, room: int, levels: int, weights: EagleNetwork, cache: KVCache,
                 rope: tuple[Tensor, Tensor]):
        self.count, self.columns, self.room, self.width = count, columns, room, width_of(count)
        self.weights, self.cache, self.rope = weights, cache, rope
        # tokens of committed rows, their rows and those of nodes, the last committed row, how many joined, and those
        self.parts = [self.width, self.width + count - 1, 1, 1, room]
        super().__init__(8 * sum(self.parts), weights.ids.device)
        self.numbers = self.staged.numpy().view(np.int64)
        self.taps = torch.zeros(self.width, levels, weights.shape.hidden, dtype=weights.embedding.dtype,
                                device=self.device)

    def __call__(self, tokens: tuple[int, ...], taps: Tensor | None, base: int,
                 added: Collection[int]) -> tuple[Tensor, Tensor]:
        """Logits [count, columns of the vocabulary] and their statistics; valid until the next chain.

        `tokens` are those of the last of `base` committed rows, which are computed from `taps` [rows, levels, hidden];
        the rows before them are there. `added` are the tokens of the text.
        """
        rows, start = len(tokens), base - len(tokens)
        self.wait()
        self.numbers[:] = (*tokens, *[0] * (self.width - rows), *range(start, start + self.width),
                           *range(base, base + self.count - 1), base - 1, len(added), *added,
                           *[0] * (self.room - len(added)))
        if taps is not None:
            self.taps[:rows].copy_(taps)
        self.send()
        logits, packed = self.launch()
        return logits[:, :len(self.weights.ids) + len(added)], packed

    @property
    def outputs(self) -> Tensor:
        """The output [capacity, hidden] of every row of the cache."""
        assert self.cache.hidden is not None       # made with the cache
        return self.cache.hidden

    def compute(self) -> tuple[Tensor, Tensor]:
        """From the inputs to logits [count, trained + room] and their packed statistics."""
        tokens, where, last, joined, added = self.inputs.view(torch.long).split(self.parts)
        tables, width = self.tables(where), self.width
        known = self.layer(self.weights.feature(self.taps), tokens, tables, slice(0, width))
        self.outputs.index_copy_(0, where[:width], known)
        ids, unused = torch.cat((self.weights.ids, added)), self.column(self.room) >= joined
        text = self.weights.text
        more = text.every[added] if text is not None and self.room else None
        x, logits = self.outputs[last], []
        for row in range(width, width + self.count):
            logits.append(self.logits(x, more, unused))
            if row + 1 < width + self.count:       # nothing follows the last token
                x = self.layer(x, ids[logits[-1].argmax(-1)], tables, slice(row, row + 1))
        whole = torch.cat(logits)
        return whole, packed_stats(whole, ids)

    def tables(self, where: Tensor) -> ChainTables:
        """Tables of these rows, each of which sees the columns up to its own."""
        hidden = torch.zeros(len(where), self.columns, dtype=self.weights.embedding.dtype, device=self.device)
        hidden.masked_fill_(self.column(self.columns) > where[:, None], float("-inf"))
        return ChainTables(where, self.rope[0][where], self.rope[1][where], hidden)

    def column(self, count: int) -> Tensor:
        return torch.arange(count, device=self.device)

    def layer(self, g: Tensor, tokens: Tensor, tables: ChainTables, part: slice) -> Tensor:
        """The outputs of rows with these features g and tokens; their keys and values go into the cache."""
        view = tables.view(part, self.weights.shape.group)
        (kv,) = columns(self.cache.kv, view)
        return self.weights.output(g, tokens, partial(attended, kv=kv, view=view))

    def logits(self, x: Tensor, more: Tensor | None, unused: Tensor) -> Tensor:
        """Logits [1, trained + room] of this output; `more` [room, hidden] are the output rows of the text's tokens."""
        read = self.weights.readout(x)
        known = self.weights.head(read).float()
        if more is None:
            return known
        return torch.cat((known, F.linear(read, more).float().masked_fill_(unused, NEVER)), 1)


class ChainMemory:
    """A cache of a head and the chains that were captured on it; both go from decode to decode (`cache_pool.py`)."""

    def __init__(self, weights: EagleNetwork):
        self.weights, embedding = weights, weights.embedding
        capacity = max(512, min(ROWS, 1 << (weights.shape.context - 1).bit_length()))
        self.cache = KVCache(weights.shape, 1, embedding.dtype, embedding.device, capacity=capacity)
        self.cache.hidden = self.cache.stream()
        self.rope: tuple[Tensor, Tensor] | None = None           # of the whole cache, made by the first head
        self.chains: dict[tuple[int, ...], CapturedChain] = {}
        self.last: CapturedChain | None = None     # that ran

    def chain(self, head: EagleHead, tokens: tuple[int, ...], count: int) -> Scores:
        """See `EagleHead.chain`: rows of committed tokens that fit no graph, such as a prompt's, are computed first."""
        head.align(tokens, Draft())
        groups, base, width = list(head.catch_up(tokens)), len(tokens) - 1, width_of(count)
        late = groups.pop().taps if groups and fits(groups[-1].taps, width) else None
        for rows in groups:
            head.run(rows)
        head.answers, rows = LogitsCache(), 0 if late is None else len(late)
        head.reserve(base + max(width, count))
        self.last = self.captured(head, base + max(width, count), count)
        with torch.inference_mode():
            logits, packed = self.last(tokens[len(tokens) - rows:], late, base, head.vocabulary.added)
            stats = unpacked(to_host(packed), logits.dtype)
        if rows:
            head.count(rows)
        head.forwards, head.fed = head.forwards + count - 1, head.fed + count - 1
        return Scores(logits, head.ids, stats)

    def captured(self, head: EagleHead, stop: int, count: int) -> CapturedChain:
        """The chain for rows before `stop`; a cache that grew lies elsewhere, so the chains on it are dropped."""
        if self.rope is not head.rope:             # it grows with the cache
            self.chains.clear()
            self.rope = head.rope
        joins = head.vocabulary.rows is not None
        room = room_for_text(len(head.vocabulary.added)) if joins else 0
        key = count, columns_for(stop), room, len(head.levels)
        if key not in self.chains:
            self.chains[key] = CapturedChain(*key, self.weights, self.cache, head.rope)
        return self.chains[key]


def fits(taps: Tensor | None, width: int) -> bool:
    """Whether a graph of this width takes in these rows."""
    return taps is not None and len(taps) <= width


class ChainLease:
    """Holds a `ChainMemory` for as long as a head uses it; the free ones lie on the network and go with it."""

    def __init__(self, weights: EagleNetwork):
        if not weights.free:
            gc.collect()                           # what only a cycle holds is free, too, and costs less than a capture
        self.free = weights.free
        self.held: ChainMemory = weights.free.pop() if weights.free else ChainMemory(weights)
        self.held.cache.tap(())                    # empty, whoever had it before

    def __del__(self):
        if hasattr(self, "held"):
            self.free.append(self.held)
