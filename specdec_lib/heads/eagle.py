"""An EAGLE head: one decoder layer that drafts from the target's features, with a key-value cache of its own.

Source: Li et al. 2025 (EAGLE-3). Row t joins the feature of position t with the embedding of the token after it and
predicts what follows that token. Rows of committed tokens use the target's features; a node's row uses its parent's
output instead, and is dropped when the context grows, since the target then has the true feature. What a row computes
is an `EagleNetwork` (`eagle_network.py`). It drafts the tokens of a `DraftVocabulary`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_lib.heads.base import Target, new_features, tap_levels
from specdec_lib.heads.captured_memory import DraftMemory
from specdec_lib.heads.captured_tree import WIDEST
from specdec_lib.heads.draft_vocabulary import DraftVocabulary
from specdec_lib.heads.eagle_network import PACKED, EagleNetwork, EagleWeights
from specdec_lib.heads.eagle_rows import compiled_rows
from specdec_lib.heads.eagle_tree import Growth, ScoredNode
from specdec_lib.heads.memory_lease import MemoryLease
from specdec_lib.models.device import to_device
from specdec_lib.models.llama.attention import hidden_block
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.forward import LayerView, attended, columns, invariant_view, view_of
from specdec_lib.models.llama.kernels import compiled_attention
from specdec_lib.models.llama.logits_cache import LogitsCache
from specdec_lib.models.llama.row_stats import row_stats_of, tells
from specdec_lib.scores import ListedRowStats, Scores
from specdec_lib.types import Draft


class HeadRows(NamedTuple):
    """Rows that a head can compute at once, from `start` of its cache on, and where their features come from."""

    start: int
    taps: Tensor | None                            # of committed tokens: the target's states [rows, levels, hidden]
    parents: slice | Tensor | None = None          # of nodes: the rows whose outputs they read


class EagleHead:
    """`head(tokens, draft)` returns scores over its vocabulary `ids`; `forwards` counts passes, `fed` rows.

    It taps the target when made, so make it before the prompt is fed. Each call computes missing rows from
    `target.features`, however many rounds passed since the last call; it reads only features before the last token.
    With `text_tokens` the tokens of the text join those that the head was trained to draft. Beside a target of captured
    steps, chains and trees are captured too (`captured_draft.py`), and the head's cache goes on to the next decode.
    """

    capture = True                                 # beside such a target, unless a head is told otherwise

    def __init__(self, state: Mapping[str, Tensor], taps: Sequence[int], target: Target,
                 packed: EagleNetwork | None = None,      # packed earlier, from the same state if it is ours
                 text_tokens: bool = False):
        tap_levels(target, taps)
        self.levels, self.target = tuple(taps), target
        self.weights: EagleNetwork = (EagleWeights.pack(state, len(taps), target.weights) if packed is None
                                      else packed)
        self.shape, self.embedding = self.weights.shape, self.weights.embedding
        self.vocabulary = DraftVocabulary(self.weights.ids, self.weights.text if text_tokens else None)
        static = self.capture and isinstance(target, Transformer) and target.static
        self.lease = MemoryLease(self.weights.free, lambda: DraftMemory(self.weights)) if static else None
        self.cache = KVCache(self.shape, 1, self.dtype, target.device) if self.lease is None else self.lease.held.cache
        if self.cache.hidden is None:
            self.cache.hidden = self.cache.stream()              # the output of every row; a node's reads its parent's
        self.paths = compiled_attention(self.shape, self.dtype, target.device)
        self.compiled = compiled_rows(self.weights, len(taps), self.paths)
        self.rope = (None if self.lease is None else self.lease.held.rope) or self.angles()
        self.first: tuple[int, ...] = ()           # no row holds the first token, so it is stored here
        self.read = -1                             # the last committed row; the outputs of others may not be there
        self.answers = LogitsCache()
        self.forwards = self.fed = 0

    @property
    def ids(self) -> Tensor:
        return self.vocabulary.ids

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def hidden(self) -> Tensor:
        """The output [capacity, hidden] of every row."""
        assert self.cache.hidden is not None       # made with the cache
        return self.cache.hidden

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        """Row 0 after the context, row i + 1 after node i. ValueError for fewer than two tokens: no feature yet."""
        self.check(tokens)
        known = self.answers.known(tokens, draft)
        if known <= len(draft):
            for rows in self.missing(tokens, draft):
                self.run(rows)
            self.answers.keep(tokens, draft, known, *self.score(len(tokens) - 2 + known, len(tokens) - 1 + len(draft)))
        return self.scores(draft)

    def check(self, tokens: tuple[int, ...]) -> None:
        """Raises ValueError for fewer than two tokens."""
        if len(tokens) < 2:
            raise ValueError("an EAGLE head reads the feature before the last token, so it needs two tokens")

    def scores(self, draft: Draft) -> Scores:
        """The scores of the last call's draft, or of a beginning of it."""
        return Scores(self.answers.rows(draft), self.ids, self.answers.stats(draft))

    @property
    def on_device(self) -> bool:
        """Whether asking for a token makes the host wait."""
        return self.ids.device.type != "cpu"

    def chain(self, tokens: tuple[int, ...], count: int) -> Scores:
        """Scores after the context and after each node of the greedy chain of `count` tokens, in one transfer.

        Each token goes from one row to the next on the device. The rows of the nodes are not kept.
        """
        self.check(tokens)
        if self.lease is not None:
            return self.lease.held.chain(self, tokens, count)
        for rows in self.missing(tokens, Draft()):
            self.run(rows)
        self.answers = LogitsCache()               # they are of rows that go
        base, logits = len(tokens) - 1, []
        self.reserve(base + count)
        self.forwards, self.fed = self.forwards + count - 1, self.fed + count - 1
        if self.compiled is not None:
            logits, stats = self.compiled.chain(self, base - 1, count)
            return Scores(logits, self.ids, stats)
        with torch.inference_mode():
            x = self.hidden[base - 1:base]
            for row in range(base, base + count):
                logits.append(self.logits(x).float())
                if row + 1 < base + count:
                    x = self.node(x, self.ids[logits[-1].argmax(-1)], row)
        whole = torch.cat(logits)
        return Scores(whole, self.ids, row_stats_of(whole, self.ids))

    @property
    def widest(self) -> int:
        """The largest width of a tree that `tree` grows; 0: it grows none."""
        if self.lease is not None:
            return min(WIDEST, len(self.weights.ids))
        return 0 if self.compiled is None else self.compiled.widest

    def tree(self, tokens: tuple[int, ...], growth: Growth) -> Sequence[ScoredNode]:
        """Every candidate of a tree that grows behind the context in one call: compiled, or captured on a GPU.

        On a CPU the rows of the candidates that were asked for children stay. ValueError where `widest` is less.
        """
        self.check(tokens)
        if growth.width > self.widest:
            raise ValueError("this head grows no tree of this width in one call")
        if self.lease is not None:
            return self.lease.held.tree(self, tokens, growth)
        assert self.compiled is not None           # `widest` asked
        for rows in self.missing(tokens, Draft()):
            self.run(rows)
        self.answers = LogitsCache()               # the logits of these rows are not kept
        base = len(tokens) - 1
        self.reserve(base + growth.width * (growth.depth - 1))
        grown = self.compiled.tree(self, base, growth)
        found, asked = grown.candidates(), grown.computed()
        self.cache.rows.draft = Draft(*found.edges(asked))
        self.cache.rows.depth += [1] * len(asked)
        self.forwards, self.fed = self.forwards + grown.record.levels, self.fed + len(asked)
        return found

    def node(self, g: Tensor, token: Tensor, row: int) -> Tensor:
        """The output [1, hidden] of a row of a chain from its feature g and its token, both on the device."""
        return self.layer(g, token, self.row_view(row))

    def row_view(self, row: int) -> LayerView:
        """The view of one row that sees all rows before it."""
        cos, sin = (table[row:row + 1] for table in self.rope)
        if self.paths is not None:
            return invariant_view(self.paths, slice(row, row + 1), row + 1, row + 1, (), cos, sin)
        return view_of(slice(row, row + 1), cos, sin, None, self.shape.group, self.cache.capacity)

    def align(self, tokens: tuple[int, ...], draft: Draft) -> None:
        """Keeps the rows of this context's tokens, and nodes only where the context is that of the last call."""
        rows = self.cache.rows
        if self.first != tokens[:1]:
            del rows.depth[:]
        if rows.tokens != tokens[1:]:
            del rows.depth[len(rows.tokens):]
        self.first = tokens[:1]
        self.vocabulary.read(tokens)
        self.cache.align(tokens[1:], draft)
        if self.read != len(tokens) - 2:           # the text became shorter: its last row is computed again
            del rows.depth[len(tokens) - 2:]

    def missing(self, tokens: tuple[int, ...], draft: Draft) -> Iterator[HeadRows]:
        """The rows that scores of this draft lack, in turn: each of these must be computed before the next is taken."""
        self.align(tokens, draft)
        yield from self.catch_up(tokens)
        yield from self.go_down(len(tokens) - 1, draft)

    def catch_up(self, tokens: tuple[int, ...]) -> Iterator[HeadRows]:
        """Missing rows of committed tokens, which read the target's features of the tokens before them; in chunks."""
        for at, taps in new_features(self.target, tokens, len(self.cache.rows), self.levels):
            yield HeadRows(at, taps.to(self.dtype))

    def go_down(self, base: int, draft: Draft) -> Iterator[HeadRows]:
        """Missing rows of nodes, as many at once as have their parents' rows: a level of a tree."""
        at = len(self.cache.rows) - base           # nodes whose rows are computed
        while at < len(draft):
            stop = next((node for node in range(at, len(draft)) if draft.parents[node] >= at), len(draft))
            parents = slice(base + at - 1, base + at)
            if stop - at > 1 or draft.parents[at] != at - 1:
                parents = to_device([base + parent for parent in draft.parents[at:stop]], self.ids.device)
            yield HeadRows(base + at, None, parents)
            at = stop

    def run(self, rows: HeadRows) -> None:
        """Computes these rows into the cache and stores their outputs."""
        if self.compiled is not None:
            self.reserve(len(self.cache.rows.tokens) + len(self.cache.rows.draft))
            self.count(self.compiled.run(self, rows))
            return
        with torch.inference_mode():
            g = self.hidden[rows.parents] if rows.taps is None else self.weights.feature(rows.taps)
        stop = rows.start + len(g)
        self.reserve(stop)
        view = self.view(rows.start, stop)
        with torch.inference_mode():
            tokens = to_device(self.cache.rows.flat(rows.start, stop), g.device)
            self.ran(rows.start, self.layer(g, tokens, view))

    def ran(self, start: int, x: Tensor) -> None:
        """Stores the outputs x [rows, hidden] of the rows from `start` on and keeps account of them."""
        self.hidden[start:start + len(x)] = x
        self.count(len(x))

    def count(self, rows: int) -> None:
        """Keeps account of so many rows, computed in one forward."""
        if len(self.cache.rows) < len(self.cache.rows.tokens):
            self.read = len(self.cache.rows) + rows - 1
        self.cache.rows.depth += [1] * rows
        self.forwards, self.fed = self.forwards + 1, self.fed + rows

    def layer(self, g: Tensor, tokens: Tensor, view: LayerView) -> Tensor:
        """The outputs of rows with these features g and tokens; their keys and values go into the cache."""
        (kv,) = columns(self.cache.kv, view)
        return self.weights.output(g, tokens, partial(attended, kv=kv, view=view))

    def reserve(self, rows: int) -> None:
        """Makes room in the cache, and computes the angles for it."""
        self.cache.reserve(rows)
        if len(self.rope[0]) < self.cache.capacity:
            self.rope = self.angles()

    def angles(self) -> tuple[Tensor, Tensor]:
        """The rotary table of the whole cache, in single precision for compiled attention."""
        dtype = self.dtype if self.paths is None else torch.float32
        return rope_table(self.shape, self.cache.capacity, dtype, self.target.device)

    def score(self, start: int, stop: int) -> tuple[Tensor, ListedRowStats | None]:
        """Logits [rows, len(ids)] of the token after each of these rows, and their statistics if they cost little."""
        if self.compiled is not None:
            return self.compiled.score(self, start, stop)
        with torch.inference_mode():
            logits = self.logits(self.hidden[start:stop])
        return logits, row_stats_of(logits, self.ids) if tells(self.ids.device, self.dtype) else None

    def logits(self, x: Tensor) -> Tensor:
        """Logits [rows, len(ids)] of these outputs."""
        read = self.weights.readout(x)
        return self.vocabulary.joined(self.weights.head(read), read)

    def view(self, start: int, stop: int) -> LayerView:
        """Angles and mask of these rows, which are all committed or all nodes."""
        rows, (cos, sin) = self.cache.rows, self.rope
        ahead, count = len(rows.tokens), stop - start
        where: slice | Tensor = slice(start, stop)
        if not rows.chain(stop):
            where = to_device([rows.position(row) for row in range(start, stop)], self.ids.device)
        parents = rows.draft.parents[:max(0, stop - ahead)]
        if self.paths is not None:
            return invariant_view(self.paths, slice(start, stop), len(rows), ahead, parents, cos[where], sin[where])
        block = hidden_block(parents, 0 if parents else count, count, False, self.dtype, self.ids.device)
        return view_of(slice(start, stop), cos[where], sin[where], block, self.shape.group, self.cache.capacity)


def eagle_head(checkpoint, target: Target, text_tokens: bool = True) -> EagleHead:
    """The head of a loaded checkpoint on this target's cache; its weights are packed once for all decodes."""
    taps = tuple(checkpoint.meta["taps"])
    tap_levels(target, taps)                       # refused first if the target keeps no features
    return EagleHead({}, taps, target, PACKED(checkpoint, target.weights), text_tokens)
