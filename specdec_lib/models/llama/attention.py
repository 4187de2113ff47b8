"""Attention masks of chains and trees, and attention of a few rows over many.

A forward feeds the last rows of the flat sequence context + draft nodes. All rows see every column before
the first one that may be hidden from some row, so masks are small blocks [rows, columns] at the right edge.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.types import ROOT

FEW = 64                                           # rows up to which plain products can beat the fused kernel on a CPU
SHORT, SMALL = 512, 2048                           # columns, and rows x columns, up to which the fused kernel is faster
STEP = 64                                          # plain products take columns in multiples of this
HALF = (torch.bfloat16, torch.float16)


def use_plain_products(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether plain matrix products are the faster attention: a few rows over many columns, in half precision on a CPU.

    Measured with 9 query and 3 key heads of 64, two threads, microseconds a layer at 260 / 450 / 1,030 columns in
    bfloat16: one row fused 32 / 40 / 105, plain 56 / 62 / 85; seven rows fused 62 / 96 / 226, plain 73 / 89 / 127. In
    float32 the fused kernel is as fast or faster.
    """
    if device.type != "cpu" or rows > FEW or dtype not in HALF:
        return False
    return columns > SHORT or rows * columns > SMALL


def widened(block: Tensor | None, rows: int, columns: int, capacity: int, dtype: torch.dtype
            ) -> tuple[Tensor | None, int]:
    """The mask block and number of columns for plain products, rounded up to a multiple of `STEP`; added ones hidden.

    oneDNN builds a kernel for every new shape, half a millisecond each, and a growing context would have a new shape at
    every token. The number of columns stays within the cache's capacity.
    """
    more = min(-(-columns // STEP) * STEP, capacity) - columns
    if not more:
        return block, columns
    block = torch.zeros(rows, 0, dtype=dtype) if block is None else block
    return F.pad(block, (0, more), value=float("-inf")), columns + more


def hidden_block(parents: tuple[int, ...], committed: int, rows: int, both_ways: bool, dtype: torch.dtype,
                 device: torch.device) -> Tensor | None:
    """`block_on_host` on this device. Not kept there: another stream could read it before it has arrived."""
    block = block_on_host(parents, committed, rows, both_ways, dtype)
    return None if block is None else block.to(device, non_blocking=True)


@lru_cache(512)
def block_on_host(parents: tuple[int, ...], committed: int, rows: int, both_ways: bool, dtype: torch.dtype
                  ) -> Tensor | None:
    """The mask of the last `rows` rows of `committed` context rows followed by these nodes: -inf where hidden, else 0.

    [rows, committed + nodes], or None where every row sees everything. A context row sees the rows before it and
    itself, a node the context, its ancestors and itself, or all nodes where `both_ways`.
    """
    seen = visible(parents, committed, both_ways)[-rows:]
    if bool(seen.all()):
        return None
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))


def visible(parents: tuple[int, ...], committed: int, both_ways: bool = False) -> Tensor:
    """Boolean [committed + nodes, committed + nodes]: whether the row sees the column."""
    seen = torch.ones(committed + len(parents), committed + len(parents), dtype=torch.bool).tril()
    if both_ways:
        seen[committed:] = True
    elif parents != tuple(range(ROOT, len(parents) - 1)):
        nodes = seen[committed:, committed:]
        nodes.zero_()
        for node, parent in enumerate(parents):
            if parent != ROOT:
                nodes[node] = nodes[parent]
            nodes[node, node] = True
    return seen


def widened_mask(block: Tensor | None, rows: int, columns: int, group: int) -> Tensor | None:
    """The block widened to all columns and repeated for the query heads that share a key head."""
    if block is None:
        return None
    out = block.new_zeros(rows, columns)
    out[:, columns - block.shape[1]:] = block
    return out.repeat(group, 1)


def attend(q: Tensor, k: Tensor, v: Tensor, block: Tensor | None, full: Tensor | None, plain: bool) -> Tensor:
    """Attention of q [heads, rows, d], already scaled, over k, v [kv_heads, columns, d]: [rows, heads * d].

    Query heads of one key head are folded into its rows, so keys and values are never repeated. `plain` products take
    the mask as `block`, the fused kernel takes it as `full`.
    """
    heads, rows, d = q.shape
    kv_heads = len(k)
    q = q.view(kv_heads, -1, d)
    if plain:
        weight = products(q, k)
        if block is not None:
            weight.view(kv_heads, -1, rows, k.shape[1])[..., -block.shape[1]:].add_(block)
        out = torch.bmm(torch.softmax(weight, -1), v)
    else:
        out = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=full, scale=1.0)
    return out.reshape(heads, rows, d).transpose(0, 1).reshape(rows, -1)


def attend_by_products(q: Tensor, k: Tensor, v: Tensor, full: Tensor) -> Tensor:
    """The same by products alone, which a GPU spreads over columns; `full` is the mask [group * rows, columns]."""
    heads, rows, d = q.shape
    q = q.reshape(len(k), -1, d)
    weight = torch.softmax(torch.baddbmm(full, q, k.transpose(1, 2)), -1)
    return torch.bmm(weight, v).view(heads, rows, d).transpose(0, 1).reshape(rows, -1)


def products(q: Tensor, k: Tensor) -> Tensor:
    """q k^T per key head; oneDNN repacks its second factor, so there the short one comes second in half precision."""
    if q.dtype in HALF and q.device.type == "cpu":
        return torch.bmm(k, q.transpose(1, 2)).transpose(1, 2).contiguous()
    return torch.bmm(q, k.transpose(1, 2))
