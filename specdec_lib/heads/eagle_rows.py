"""The rows of an EAGLE head in our own C code (`eagle_rows.c`): a group of rows, a whole chain or a tree in one call.

A row of a head is some ten small operations, and Python between them takes time:
`data/results/spec-bench.md` has the times of drafts before and since.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specdec_lib.heads.eagle_network import EagleWeights
from specdec_lib.heads.eagle_tree import Growth, TreeMemory
from specdec_lib.heads.head_records import (
    ProductRecord,
    VocabularyRecord,
    checked,
    product_record,
    take_over,
    whole_numbers,
)
from specdec_lib.models.llama.compiled import library
from specdec_lib.models.llama.compiled_layers import address_of
from specdec_lib.models.llama.compiled_linear import ADDRESS, FLOAT, INT64, threads_record
from specdec_lib.models.llama.dense_linear import dense_code
from specdec_lib.models.llama.invariant_attention import is_chain
from specdec_lib.models.llama.path_attention import PathAttention, RowsRecord, flat_paths
from specdec_lib.models.llama.row_stats import TOP, compiled_stats, unpacked
from specdec_lib.models.llama.weights import code_of
from specdec_lib.scores import ListedRowStats

if TYPE_CHECKING:
    from specdec_lib.heads.eagle import EagleHead, HeadRows

SOURCE = Path(__file__).with_suffix(".c")
WIDEST = 32                                        # of a tree: `MOST` of eagle_tree.h


class NetworkRecord(ctypes.Structure):
    """`Network` of the C code."""

    _fields_ = (*((name, ProductRecord) for name in ("features", "qkv")),
                *((name, ADDRESS) for name in ("finish", "out", "gate_up", "down", "norm", "attend", "stats", "weight",
                                               "embedding")),
                *((name, INT64) for name in ("hidden", "levels", "attended", "angles", "size")), ("eps", FLOAT))


class HeadRecord(ctypes.Structure):
    """`Head` of the C code."""

    _fields_ = (("network", ADDRESS), ("threads", ADDRESS), ("rows", RowsRecord), ("outputs", ADDRESS),
                ("keys", ADDRESS), ("values", ADDRESS), ("stride", INT64), ("cosines", ADDRESS), ("sines", ADDRESS),
                ("vocabulary", VocabularyRecord), ("ids", ADDRESS))


class GroupRecord(ctypes.Structure):
    """`Group` of the C code."""

    _fields_ = (*((name, INT64) for name in ("first", "count", "context")),
                *((name, ADDRESS) for name in ("tokens", "positions", "states", "parents", "ends", "nodes")))


class CompiledRows:
    """Computes and scores the rows of one head, whose cache and vocabulary it reads anew at each call."""

    def __init__(self, code: ctypes.CDLL, weights: EagleWeights, levels: int, paths: PathAttention, stats: Any):
        fused, shape = weights.layer.fused, weights.shape
        assert fused is not None                   # `compiled_rows` asked
        qkv, out, gate_up, down = fused.matrices
        self.code, self.columns, self.kept = code, len(weights.ids), weights
        self.network = NetworkRecord(
            *map(product_record, (weights.fc, qkv)), address_of(fused.code.finish), out.address,
            gate_up.address, down.address, address_of(fused.code.norm), address_of(paths.attend), address_of(stats),
            weights.norm.data_ptr(), weights.embedding.data_ptr(), shape.hidden, levels, paths.heads * paths.head_dim,
            paths.head_dim, weights.embedding.element_size(), shape.eps)
        self.head = HeadRecord(ctypes.addressof(self.network))
        self.head.vocabulary.trained = product_record(weights.head)
        self.head.vocabulary.size = weights.embedding.element_size()
        self.head.rows = RowsRecord(0, 0, 0, paths.heads, paths.kv_heads, 1, None, None, None, None, paths.pool)
        self.address = ctypes.addressof(self.head)
        self.places: tuple[Tensor, ...] = ()       # the tensors whose addresses `head` holds
        self.ids: Tensor | None = None
        self.growth: tuple[Growth, TreeMemory] | None = None       # the last tree's

    def run(self, head: EagleHead, rows: HeadRows) -> int:
        """Computes these rows, for which there is room, into the head's cache and returns how many they are."""
        cached, states, parents = head.cache.rows, None, None
        if rows.taps is None:
            parents = whole_numbers(row_numbers(rows.parents))
            count = len(parents)
        else:
            states = rows.taps.contiguous()
            count = len(states)
        stop, ahead = rows.start + count, len(cached.tokens)
        chain = cached.chain(stop)
        where = range(rows.start, stop)
        positions = whole_numbers(where if chain else map(cached.position, where))
        tokens = whole_numbers(cached.flat(rows.start, stop))
        own = cached.draft.parents[:max(0, stop - ahead)]
        paths = () if is_chain(own) else flat_paths(own)
        ends, nodes = map(ctypes.addressof, paths) if paths else (None, None)
        group = GroupRecord(rows.start, count, ahead, ctypes.addressof(tokens), ctypes.addressof(positions),
                            None if states is None else states.data_ptr(),
                            None if parents is None else ctypes.addressof(parents), ends, nodes)
        self.place(head)
        checked(self.code.run_rows(self.address, ctypes.addressof(group)))
        return count

    def score(self, head: EagleHead, start: int, stop: int) -> tuple[Tensor, ListedRowStats]:
        """Logits [rows, len(ids)] of the token after each of these rows, and their statistics."""
        return self.scored(self.code.score_rows, head, start, stop - start)

    def chain(self, head: EagleHead, row: int, count: int) -> tuple[Tensor, ListedRowStats]:
        """The logits [count, len(ids)] of the greedy chain after this row, for which there is room, and statistics."""
        return self.scored(self.code.run_chain, head, row, count)

    @property
    def widest(self) -> int:
        """The largest width of a tree that the C code grows."""
        return min(WIDEST, self.columns)

    def tree(self, head: EagleHead, context: int, growth: Growth) -> TreeMemory:
        """The tree that grows behind the `context` rows that are computed, for which there is room in the cache."""
        self.place(head)
        self.read(head)
        k = min(max(TOP, growth.width), self.columns + self.head.vocabulary.added)
        if self.growth is None or self.growth[0] != growth or self.growth[1].record.k != k:
            self.growth = growth, TreeMemory(growth, k)
        memory = self.growth[1]
        checked(self.code.run_tree(self.address, context, memory.address))
        return memory

    def scored(self, run: Callable[..., int], head: EagleHead, row: int, count: int) -> tuple[Tensor, ListedRowStats]:
        self.place(head)
        self.read(head)
        columns = self.columns + self.head.vocabulary.added
        logits = torch.empty(count, columns, dtype=head.dtype)
        k = min(TOP, columns)
        stats = torch.empty(count, 2 * k + 2, dtype=torch.float64)
        checked(run(self.address, row, count, k, logits.data_ptr(), stats.data_ptr()))
        return logits, unpacked(stats, torch.float32)

    def place(self, head: EagleHead) -> None:
        """Takes over where the head's cache and angles lie, and how many threads there are."""
        threads = torch.get_num_threads()
        self.head.threads, self.head.rows.threads = ctypes.addressof(threads_record(threads)), threads
        places = head.hidden, head.cache.kv, *head.rope
        if not self.places or any(new is not old for new, old in zip(places, self.places, strict=True)):
            (keys, values), self.places = head.cache.kv[0], places
            self.head.outputs, self.head.stride = head.hidden.data_ptr(), keys.stride(0)
            self.head.keys, self.head.values = keys.data_ptr(), values.data_ptr()
            self.head.cosines, self.head.sines = (table.data_ptr() for table in head.rope)

    def read(self, head: EagleHead) -> None:
        """Takes over the output rows of the text's own tokens."""
        if head.ids is not self.ids:
            self.ids = head.ids
            self.head.ids = self.ids.data_ptr()
            take_over(self.head.vocabulary, head.vocabulary)


def compiled_rows(weights: Any, levels: int, paths: PathAttention | None) -> CompiledRows | None:
    """The compiled rows of a head of ours; None where a part of it, or of its attention, is not compiled."""
    fused = weights.layer.fused if isinstance(weights, EagleWeights) else None
    if fused is None or paths is None or weights.layer.q_norm is not None:
        return None
    dtype, code = weights.embedding.dtype, compiled_functions()
    codes = fused.code, code_of(weights.fc), code_of(weights.head), dense_code(dtype)
    there = all(one is not None and one.dtype == dtype for one in codes) and weights.norm.dtype == dtype
    stats = compiled_stats(dtype)
    if code is None or stats is None or not there or not weights.embedding.is_contiguous():
        return None
    return CompiledRows(code, weights, levels, paths, stats)


@cache
def compiled_functions() -> ctypes.CDLL | None:
    """The C functions, which know what they take; None where nothing compiles."""
    code = library(SOURCE)
    if code is None:
        return None
    code.run_rows.argtypes = ADDRESS, ADDRESS
    code.run_tree.argtypes = ADDRESS, INT64, ADDRESS
    for function in (code.score_rows, code.run_chain):
        function.argtypes = ADDRESS, INT64, INT64, INT64, ADDRESS, ADDRESS
    return code


def row_numbers(rows: slice | Tensor | None) -> Iterable[int]:
    """The numbers of these rows."""
    assert rows is not None                        # nodes have parents
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
