"""A block drafter in our own C code (`block_rows.c`): its rows of committed tokens, and a whole block in one call.

A block is some sixty small operations, and Python between them takes as long as its products;
`data/results/spec-bench.md` has the times of drafts before and since.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specdec_lib.heads.head_records import (
    ProductRecord,
    VocabularyRecord,
    checked,
    one_code,
    product_record,
    take_over,
    whole_numbers,
)
from specdec_lib.linked_slots import Children
from specdec_lib.models.llama.compiled import library
from specdec_lib.models.llama.compiled_layers import address_of
from specdec_lib.models.llama.compiled_linear import ADDRESS, FLOAT, INT64, threads_record
from specdec_lib.models.llama.dense_linear import dense_code
from specdec_lib.models.llama.path_attention import DTYPES, PathAttention, RowsRecord, every_node
from specdec_lib.models.llama.row_stats import MOST, compiled_stats

if TYPE_CHECKING:
    from specdec_lib.heads.block_diffusion import BlockHead

SOURCE = Path(__file__).with_suffix(".c")
DOUBLE = ctypes.c_double
WALKED = 5                                         # numbers of a slot: token, two probabilities, entropy, confidence
PRODUCTS = ("features", "first", "inject_first", "inject", "correction")
FUNCTIONS = ("multiply", "finish", "norm", "attend", "stats")


class BlockNetworkRecord(ctypes.Structure):
    """`Network` of the C code."""

    _fields_ = (*((name, ProductRecord) for name in PRODUCTS), ("layers", ADDRESS), ("count", INT64),
                *((name, ADDRESS) for name in (*FUNCTIONS, "weight", "embedding", "confidence", "rows")),
                *((name, INT64) for name in ("by_token", "hidden", "levels", "head_dim")), ("eps", FLOAT))


class BlockHeadRecord(ctypes.Structure):
    """`Head` of the C code."""

    _fields_ = (("network", ADDRESS), ("threads", ADDRESS), ("rows", RowsRecord), ("feature", ADDRESS), ("kv", ADDRESS),
                ("capacity", INT64), ("cosines", ADDRESS), ("sines", ADDRESS), ("vocabulary", VocabularyRecord),
                ("ids", ADDRESS), ("masks", ADDRESS), ("block", INT64), ("ends", ADDRESS), ("nodes", ADDRESS))


class CompiledBlock:
    """Keeps rows and drafts blocks for one head, whose cache and vocabulary it reads anew at each call."""

    def __init__(self, code: ctypes.CDLL, head: BlockHead, attention: PathAttention, stats: Any):
        w, shape, block = head.weights, head.shape, head.block
        layers = [layer.fused for layer in (w.first, *w.layers)]
        own = one_code((w.fc,))
        assert own is not None                     # `compiled_block` asked
        functions = own.multiply, own.finish, own.norm, attention.attend, stats
        addresses = [matrix.address for layer in layers if layer is not None for matrix in layer.matrices]
        self.code, self.masks = code, head.masks.contiguous()
        self.layers = (ADDRESS * len(addresses))(*addresses)
        products = w.fc, w.first.qkv, w.inject_first, w.inject if w.layers else None, w.correction
        rows = w.rows if w.text is None else w.text.every
        self.network = BlockNetworkRecord(
            *(ProductRecord() if one is None else product_record(one) for one in products),
            ctypes.addressof(self.layers), len(layers), *map(address_of, functions), w.norm.data_ptr(),
            w.embedding.data_ptr(), w.confidence.data_ptr(), rows.data_ptr(), w.text is not None, shape.hidden,
            len(head.levels), shape.head_dim, shape.eps)
        self.head = BlockHeadRecord(ctypes.addressof(self.network))
        self.head.rows = RowsRecord(0, 0, 0, shape.heads, shape.kv_heads, 1, None, None, None, None, attention.pool)
        self.head.vocabulary.trained = product_record(w.head)
        self.head.vocabulary.size = w.embedding.element_size()
        self.head.masks, self.head.block = self.masks.data_ptr(), block
        if block > 1:                              # a single slot sees what a row of a text sees
            self.paths = every_node(block)
            self.head.ends, self.head.nodes = map(ctypes.addressof, self.paths)
        self.address = ctypes.addressof(self.head)
        self.ids: Tensor | None = None

    def keep(self, head: BlockHead, taps: Tensor, tokens: tuple[int, ...], start: int) -> None:
        """Writes the rows from `start` on, for which there is room; see `BlockHead.keep`."""
        self.place(head)
        taps, words = taps.contiguous(), whole_numbers(tokens)
        checked(self.code.keep_rows(self.address, taps.data_ptr(), ctypes.addressof(words), len(words), start))

    def draft(self, head: BlockHead, anchor: int, start: int, count: int, top: int, walk: bool
              ) -> tuple[Tensor, Tensor | None]:
        """What `packed_stats` says of the first `count` slots, and with `walk` the numbers of the walk through them.

        There is room for the block from row `start` on.
        """
        self.place(head)
        told = torch.empty(count, 2 * top + 2, dtype=torch.float64)
        chain = torch.empty(count, WALKED, dtype=torch.float64) if walk else None
        checked(self.code.draft_block(self.address, anchor, start, count, top, told.data_ptr(),
                                      None if chain is None else chain.data_ptr()))
        return told, chain

    def after(self, token: int, told: Tensor, slot: int) -> Children:
        """The candidates of a slot of `told` after this token, below 0 for none; until the vocabulary changes."""
        k = told.shape[1] // 2 - 1
        out, row = (DOUBLE * (2 * k + 1))(), told.data_ptr() + slot * told.stride(0) * told.itemsize
        checked(self.code.candidates_after(self.address, token, k, row, ctypes.addressof(out)))
        return Children([int(place) for place in out[:k]], out[k:2 * k], out[2 * k])

    def place(self, head: BlockHead) -> None:
        """Takes over where the head's cache, angles and vocabulary lie, and how many threads there are."""
        threads, (cos, sin) = torch.get_num_threads(), head.rope
        self.head.threads, self.head.rows.threads = ctypes.addressof(threads_record(threads)), threads
        self.head.kv, self.head.capacity = head.cache.kv.data_ptr(), head.cache.capacity
        self.head.cosines, self.head.sines, self.head.feature = cos.data_ptr(), sin.data_ptr(), head.feature.data_ptr()
        if head.ids is not self.ids:
            self.ids = head.ids
            self.head.ids = self.ids.data_ptr()
            take_over(self.head.vocabulary, head.vocabulary)


def compiled_block(head: BlockHead) -> CompiledBlock | None:
    """The compiled code of this head; None where a part of it is not compiled."""
    w, dtype = head.weights, head.embedding.dtype
    layers, stats = [layer.fused for layer in (w.first, *w.layers)], compiled_stats(dtype)
    matrices = [matrix for layer in layers if layer is not None for matrix in layer.matrices]
    own = one_code((w.fc, w.inject_first, w.inject, w.correction, w.head, *matrices))
    rows = w.rows if w.text is None else w.text.every
    plain = all(each.dtype == dtype and each.is_contiguous() for each in (w.embedding, w.norm, w.confidence, rows))
    if head.attention is None or own is None or own.dtype != dtype or None in layers or not plain:
        return None
    code = compiled_functions(dtype)
    if code is None or stats is None or dense_code(dtype) is None or head.candidates > MOST:
        return None
    return CompiledBlock(code, head, head.attention, stats)


@cache
def compiled_functions(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The C functions for numbers of this dtype, which know what they take; None where nothing compiles."""
    code = library(SOURCE, *DTYPES[dtype])
    if code is None:
        return None
    code.keep_rows.argtypes = ADDRESS, ADDRESS, ADDRESS, INT64, INT64
    code.candidates_after.argtypes = ADDRESS, INT64, INT64, ADDRESS, ADDRESS
    code.draft_block.argtypes = ADDRESS, INT64, INT64, INT64, INT64, ADDRESS, ADDRESS
    return code
