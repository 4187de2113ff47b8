"""What an EAGLE head drafts as one launch: shapes and addresses never change, so a CUDA graph holds it.

One graph takes in the last committed tokens, from the target's features, and then drafts: a greedy chain
(`captured_chain.py`) or a tree (`captured_tree.py`). Its numbers travel in one copy from pinned memory, the features in
another; what was drafted comes back in one transfer. Rows of committed tokens are padded to a fixed width. Padding is
written behind the last of them, where nodes and later rows overwrite it, and no row sees it. The tokens of the text
that joined the draft vocabulary are an input, too: the graph gathers their output rows, and the columns of its unused
room have the logit `NEVER`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.draft_vocabulary import NEVER, TextRows
from specdec_lib.heads.eagle_network import EagleNetwork
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.cuda_graph import CapturedWork
from specdec_lib.models.llama.forward import LayerView, attended, columns

NARROWEST = 8                                      # rows of committed tokens that every graph takes in
ROOM = 256                                         # tokens of the text of the smallest graph: few texts need a second


def width_of(count: int) -> int:
    """Rows of committed tokens that a draft of `count` levels takes in: as many as a whole path and one token add."""
    return max(NARROWEST, 1 << count.bit_length())


def room_for_text(added: int) -> int:
    """The smallest power of two of columns that holds so many tokens of the text, so that few drafts are captured."""
    return max(ROOM, 1 << (added - 1).bit_length())


class Place(NamedTuple):
    """What a graph is captured for: its columns of the cache, its room for tokens of the text, the tapped layers."""

    columns: int
    room: int
    levels: int


class DraftTables(NamedTuple):
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


class JoinedVocabulary(NamedTuple):
    """The token of each column of logits, and what the text's tokens add."""

    ids: Tensor                                    # [trained + room]
    rows: Tensor | None                            # [room, hidden] their output rows; None: none can join
    unused: Tensor                                 # [room] bool

    @staticmethod
    def of(trained: Tensor, text: TextRows | None, added: Tensor, joined: Tensor) -> JoinedVocabulary:
        """With the first `joined` of these tokens [room]."""
        unused = torch.arange(len(added), device=added.device) >= joined
        rows = text.every[added] if text is not None and len(added) else None
        return JoinedVocabulary(torch.cat((trained, added)), rows, unused)

    def logits(self, known: Tensor, read: Tensor) -> Tensor:
        """Logits [rows, trained + room] from those of trained tokens and what output rows read [rows, hidden]."""
        if self.rows is None:
            return known.float()
        logits = torch.cat((known, F.linear(read, self.rows)), 1).float()
        logits[:, known.shape[1]:].masked_fill_(self.unused, NEVER)
        return logits


class CapturedDraft(CapturedWork):
    """A draft of at most `count` levels and `nodes` rows over the first columns of a cache."""

    def __init__(self, count: int, nodes: int, place: Place, weights: EagleNetwork, cache: KVCache,
                 rope: tuple[Tensor, Tensor], more: int = 0):
        self.count, self.nodes, self.width = count, nodes, width_of(count)
        self.columns, self.room, levels = place
        self.weights, self.rope = weights, rope
        # tokens of committed rows, their rows and those of nodes, the last committed row, how many tokens of the text
        # joined, those, and what a kind of draft reads besides
        self.parts = [self.width, self.width + nodes, 1, 1, self.room, more]
        super().__init__(8 * sum(self.parts), cache)
        self.numbers = self.staged.numpy().view(np.int64)
        self.taps = torch.zeros(self.width, levels, weights.shape.hidden, dtype=weights.embedding.dtype,
                                device=self.device)

    def __call__(self, tokens: tuple[int, ...], taps: Tensor | None, base: int, added: Collection[int],
                 *more: int) -> tuple[Tensor, ...]:
        """What `drafted` returns; valid until the next draft.

        `tokens` are those of the last of `base` committed rows, which are computed from `taps` [rows, levels, hidden];
        the rows before them are there. `added` are the tokens of the text.
        """
        rows, start = len(tokens), base - len(tokens)
        self.wait()
        self.numbers[:] = (*tokens, *[0] * (self.width - rows), *range(start, start + self.width),
                           *range(base, base + self.nodes), base - 1, len(added), *added,
                           *[0] * (self.room - len(added)), *more)
        if taps is not None:
            self.taps[:rows].copy_(taps)
        self.send()
        return self.launch()

    @property
    def outputs(self) -> Tensor:
        """The output [capacity, hidden] of every row of the cache."""
        assert self.cache.hidden is not None       # made with the cache
        return self.cache.hidden

    def compute(self) -> tuple[Tensor, ...]:
        """From the inputs, by way of the committed rows, to what is drafted behind the last of them."""
        tokens, where, last, joined, added, more = self.inputs.view(torch.long).split(self.parts)
        tables, width = self.tables(where), self.width
        known = self.layer(self.weights.feature(self.taps), tokens, tables.view(slice(0, width), self.group))
        self.outputs.index_copy_(0, where[:width], known)
        vocabulary = JoinedVocabulary.of(self.weights.ids, self.weights.text, added, joined)
        return self.drafted(self.outputs[last], vocabulary, tables, more)

    @abstractmethod
    def drafted(self, x: Tensor, vocabulary: JoinedVocabulary, tables: DraftTables, more: Tensor) -> tuple[Tensor, ...]:
        """What follows the last committed row, whose output x [1, hidden] is; rows of nodes follow `width` others."""

    @property
    def group(self) -> int:
        return self.weights.shape.group

    def tables(self, where: Tensor) -> DraftTables:
        """Tables of these rows, each of which sees the columns up to its own."""
        hidden = torch.zeros(len(where), self.columns, dtype=self.weights.embedding.dtype, device=self.device)
        hidden.masked_fill_(self.column(self.columns) > where[:, None], float("-inf"))
        return DraftTables(where, self.rope[0][where], self.rope[1][where], hidden)

    def column(self, count: int) -> Tensor:
        return torch.arange(count, device=self.device)

    def layer(self, g: Tensor, tokens: Tensor, view: LayerView) -> Tensor:
        """The outputs of rows with these features g and tokens; their keys and values go into the cache."""
        (kv,) = columns(self.cache.kv, view)
        return self.weights.output(g, tokens, partial(attended, kv=kv, view=view))

    def logits(self, x: Tensor, vocabulary: JoinedVocabulary) -> Tensor:
        """Logits [rows, trained + room] of these outputs."""
        read = self.weights.readout(x)
        return vocabulary.logits(self.weights.head(read), read)
