"""Attention of bfloat16 rows on a CPU whose bits do not depend on what is computed beside a row ("batch invariance").

With torch's kernels: for heads and machines for which the compiled attention (`path_attention.py`) cannot be had.

Plain decoding computes a row alone, over the columns of its own path in order. A verified row is computed among others,
with columns between that it must not see. oneDNN's products in bfloat16 promise enough to get the same bits, and
`kernels.py` tests it on the machine:

1. An element does not depend on how many rows there are, nor on columns of weight zero behind the last one that counts.
2. A sum over columns goes through pairs of columns in order; pairs of weight zero between them change nothing, as long
   as no pair leaves its block of `BLOCK` columns. Above `LONG` columns the order is another one.

So the softmax runs over columns in the order of the row's path, and values are summed pair by pair of positions: a node
at an odd position stands beside a copy of its parent, behind all other columns. Where that would cross the border of a
block, the columns of each path are copied instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from specdec_lib.models.llama.attention import products
from specdec_lib.types import ROOT

STEP = 64                                          # columns are taken in multiples of this
BLOCK = 512                                        # columns that a kernel sums in one go
LONG = 1024                                        # columns above which the kernels sum in another order
TILE = 128                                         # rows of a chain that attend at once
WIDE = 96                                          # rows from which q k^T is faster than k q^T; the bits are the same
SMALL = 4096                                       # multiplications up to which torch does not call oneDNN

Parents = tuple[int, ...]


@dataclass(frozen=True)
class PairColumns:
    """Where the nodes' columns have to stand for the softmax, and for the sum over values.

    `by_depth` [kv_heads, group * rows, columns from `context`] is the node that a row sees at a position, counted from
    `context`; where it sees none, the last column. `weights` [kv_heads, group * rows, columns from `start`] is the
    position, counted from `start`, whose weight a column takes; `values` are the cache columns whose values stand in
    the pairs.
    """

    context: int                                   # tokens before the first node
    by_depth: Tensor
    start: int                                     # columns from here on are summed over in pairs of their own
    weights: Tensor
    room: int                                      # the first column of the pairs
    values: Tensor


@dataclass(frozen=True)
class AttentionPart:
    """Some of the rows that are fed, and the columns they attend to."""

    rows: slice | Tensor
    columns: int
    mask: Tensor | None                            # [rows, width] of the last `width` columns: 0, or -inf where hidden
    path: Tensor | None = None                     # the cache columns in the order of the path; None = as they lie
    pairs: PairColumns | None = None


@dataclass(frozen=True)
class Layout:
    """The heads of a model, and how many columns a row of it takes at least."""

    group: int                                     # query heads per key head
    kv_heads: int
    least: int

    @staticmethod
    def of(group: int, kv_heads: int, head_dim: int) -> Layout:
        return Layout(group, kv_heads, padded(SMALL // (group * kv_heads * head_dim) + 1))

    def columns(self, count: int) -> int:
        """The columns that are computed where `count` of them count."""
        return max(padded(count), self.least)

    def room(self, rows: int, nodes: int) -> int:
        """The cache columns that may be needed for so many rows, of which the last ones are `nodes`."""
        return self.columns(rows + 2 * nodes + 2)


def padded(count: int) -> int:
    return -(-count // STEP) * STEP


def parts_of(layout: Layout, start: int, stop: int, held: int, context: int, parents: Parents
             ) -> tuple[AttentionPart, ...]:
    """How the rows from `start` to `stop` attend, of which those from `context` on are nodes with these parents.

    `held` counts the rows of the cache whose values must be kept.
    """
    if stop <= context or is_chain(parents):
        return tuple(chain_parts(layout, start, start, stop))
    first = max(start, context - 1)                # the last token of the context attends with the nodes
    before = tuple(chain_parts(layout, start, start, first))
    part = pair_part(layout, slice(first - start, stop - start), first, max(stop, held), context, parents)
    return (*before, part) if part else (*before, *path_parts(layout, start, first, context, parents))


def is_chain(parents: Parents) -> bool:
    """Whether each node follows the one before it."""
    return parents == tuple(range(ROOT, len(parents) - 1))


def chain_parts(layout: Layout, origin: int, start: int, stop: int) -> Iterator[AttentionPart]:
    """Parts of rows that each see all columns up to their own."""
    while start < stop:
        end = min(start + TILE, stop)
        if start < LONG < end:
            end = LONG
        columns = layout.columns(end)
        mask = mask_of(tuple(range(end - start)), columns - start - 1)
        yield AttentionPart(slice(start - origin, end - origin), columns, mask)
        start = end


@lru_cache(1024)
def mask_of(seen: tuple[int, ...], width: int) -> Tensor | None:
    """The mask [rows, width] of rows that see that many of these columns each; None without columns."""
    if not width:
        return None
    hidden = torch.arange(width)[None] >= torch.tensor(seen)[:, None]
    return torch.zeros(hidden.shape, dtype=torch.bfloat16).masked_fill_(hidden, float("-inf"))


def pair_part(layout: Layout, rows: slice, first: int, held: int, context: int, parents: Parents
              ) -> AttentionPart | None:
    """The last token of a context, if `first` is its row, and the nodes; None where a pair would leave its block."""
    paths = paths_of(parents)
    start, room = context - context % 2, held + held % 2
    pairs, own = pairs_of(paths, context)
    end = room + 2 * len(pairs)
    columns = layout.columns(end)
    queries = ([()] if first < context else []) + paths[max(0, first - context):]
    shortest = layout.columns(context + min(map(len, queries)))
    if start // BLOCK != (end - 1) // BLOCK or (columns > LONG) != (shortest > LONG):
        return None
    deepest = max(map(len, paths))
    nothing = context + deepest - start            # a column that no row sees
    before = [nothing] * (room - start)
    places = [before + row_weights(path, own, context, start, len(pairs), nothing) for path in queries]
    nowhere = columns - context - 1
    by_depth = torch.full((len(queries), columns - context), nowhere)
    by_depth[:, :deepest] = torch.tensor([[*path, *[nowhere] * (deepest - len(path))] for path in queries])
    sources = [context - 1 if node == ROOT else context + node for pair in pairs for node in pair]
    return AttentionPart(rows, columns, None, pairs=PairColumns(
        context, by_depth.repeat(layout.kv_heads, layout.group, 1), start,
        torch.tensor(places).repeat(layout.kv_heads, layout.group, 1), room, torch.tensor(sources)))


@lru_cache(64)
def paths_of(parents: Parents) -> list[tuple[int, ...]]:
    """The nodes from the first one down to each node."""
    paths: list[tuple[int, ...]] = []
    for node, parent in enumerate(parents):
        paths.append((*(() if parent == ROOT else paths[parent]), node))
    return paths


def pairs_of(paths: Sequence[tuple[int, ...]], context: int) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """The pairs of nodes whose values stand beside each other, and the pair in which each node is the last of a path.

    A node at an odd position follows its parent; one at an even position stands first in the pair of its first child,
    or in one of its own. ROOT is the last token of the context.
    """
    pairs, own = [], {}
    followed = {path[-2] if len(path) > 1 else ROOT for path in paths}
    for path in paths:
        node, parent = path[-1], path[-2] if len(path) > 1 else ROOT
        odd = (context - 1 + len(path)) % 2
        if odd or node not in followed:
            own[node] = len(pairs)
            if odd:
                own.setdefault(parent, len(pairs))
            pairs.append((parent, node) if odd else (node, node))
    return pairs, own


def row_weights(path: tuple[int, ...], own: dict[int, int], context: int, start: int, pairs: int, nothing: int
                ) -> list[int]:
    """For each column of the pairs the position, counted from `start`, whose weight this row puts there."""
    out = [nothing] * (2 * pairs)
    for depth, node in enumerate((ROOT, *path)):
        position = context - 1 + depth
        if position % 2 and node != ROOT:
            out[2 * own[node]:2 * own[node] + 2] = position - 1 - start, position - start
    last = path[-1] if path else ROOT
    position = context - 1 + len(path)
    if position >= start and position % 2 == 0:
        out[2 * own[last]] = position - start
    return out


def path_parts(layout: Layout, origin: int, first: int, context: int, parents: Parents) -> Iterator[AttentionPart]:
    """The same rows, one part per leaf: its path's columns are copied into their order."""
    paths, done = paths_of(parents), set(range(max(0, first - context)))
    inner, with_last = set(parents), first < context
    for leaf, path in enumerate(paths):
        if leaf in inner:
            continue
        new = [(context + node - origin, len(paths[node])) for node in path if node not in done]
        if with_last:
            new, with_last = [(first - origin, 0), *new], False
        done.update(path)
        order = [*range(context), *(context + node for node in path)]
        for long in (False, True):
            rows = [(row, seen) for row, seen in new if (layout.columns(context + seen) > LONG) == long]
            if rows:
                columns = layout.columns(context + rows[-1][1])
                path_columns = torch.tensor((order + [0] * columns)[:columns])
                yield AttentionPart(torch.tensor([row for row, _ in rows]), columns,
                                    mask_of(tuple(seen for _, seen in rows), columns - context), path_columns)


def attend_in_order(q: Tensor, keys: Tensor, values: Tensor, parts: Sequence[AttentionPart]) -> Tensor:
    """Attention of q [heads, rows, d], already scaled, over keys and values [kv_heads, columns, d]: [rows, heads * d].

    The values of the pairs are written into columns behind the rows that the cache holds.
    """
    heads, rows, d = q.shape
    if len(parts) == 1 and isinstance(parts[0].rows, slice):
        out = part_of_attention(q.view(len(keys), -1, d), rows, keys, values, parts[0])
    else:
        q = q.view(len(keys), -1, rows, d)
        out = torch.empty_like(q)
        for part in parts:
            some = q[:, :, part.rows]
            out[:, :, part.rows] = part_of_attention(some.reshape(len(keys), -1, d), some.shape[2], keys, values,
                                                     part).view(some.shape)
    return out.view(heads, rows, d).transpose(0, 1).reshape(rows, -1)


def part_of_attention(q: Tensor, rows: int, keys: Tensor, values: Tensor, part: AttentionPart) -> Tensor:
    """Attention of q [kv_heads, group * rows, d] over the columns of this part."""
    k, v = keys, values
    if part.path is not None:
        k, v = keys.index_select(1, part.path), values.index_select(1, part.path)
    elif part.columns < keys.shape[1]:
        k, v = keys[:, :part.columns], values[:, :part.columns]
    count = q.shape[1]
    if count == 1:                                 # a single row may have a kernel of its own
        q = q.expand(-1, 2, -1)
    weights = products(q, k) if count < WIDE else torch.bmm(q, k.transpose(1, 2))
    if part.pairs is not None:
        put_in_order(weights, part.pairs)
    if part.mask is not None:
        width = part.mask.shape[1]
        weights.view(len(q), -1, rows, part.columns)[..., -width:].add_(part.mask)
    weights = torch.softmax(weights, -1)
    if part.pairs is not None:
        put_in_pairs(weights, values, part.pairs)
    out = torch.bmm(weights, v)
    return out if count > 1 else out[:, :1]


def put_in_order(weights: Tensor, pairs: PairColumns) -> None:
    """Moves the nodes in weights [kv_heads, group * rows, columns] to their positions, and hides the other columns."""
    behind = weights[..., pairs.context:]
    behind[..., -1] = float("-inf")
    behind.copy_(behind.gather(-1, pairs.by_depth))


def put_in_pairs(weights: Tensor, values: Tensor, pairs: PairColumns) -> None:
    """Moves the weights from their positions to the pairs, and writes the values that stand there."""
    behind = weights[..., pairs.start:]
    behind[..., :pairs.weights.shape[2]] = behind.gather(-1, pairs.weights)
    values[:, pairs.room:pairs.room + len(pairs.values)] = values.index_select(1, pairs.values)
