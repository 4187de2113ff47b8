"""Whether this machine's kernels give a row the same bits alone and among others, tried on the model's shapes.

Trials use numbers whose sums cancel: what is left is rounding, and shows in nearly every element in which order a
kernel adds. Linear layers of our own (`dense_linear.py`, `four_bit_linear.py`) need no trial. `path_attention.py`
brings an attention of its own, which is taken where it compiles and passes its trial; otherwise see
`invariant_attention.py` for what is asked of torch's kernels.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from specdec_lib.models.llama.attention import products
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.dense_linear import DenseLinear
from specdec_lib.models.llama.forward import rotate
from specdec_lib.models.llama.four_bit_linear import FourBitLinear
from specdec_lib.models.llama.invariant_attention import STEP, Layout, Parents, padded, paths_of
from specdec_lib.models.llama.packed_linear import PackedLinear, cancelling, packs_dtype
from specdec_lib.models.llama.path_attention import PathAttention, path_attention
from specdec_lib.models.llama.weights import LlamaWeights

ROWS = (3, 17)                                     # rows computed together that are compared with rows by twos
COUNTS = (448,)                                    # columns that count
ALL_ROWS = (3, 9, 17, 64, 150)
ALL_COUNTS = (192, 448, 960, 1408, 1984)           # before and behind the borders of blocks
TAIL = 32                                          # columns that are spread in pairs
TREE = (-1, 0, 0, 1, 3, -1, 2, 6, 4)               # parents of nodes that are compared with plain decoding
NEAR = {torch.bfloat16: 2 ** -5, torch.float32: 4e-5}        # how far weights and results may be from exact ones


def layout_of(weights: LlamaWeights) -> Layout | PathAttention | None:
    """The attention whose bits do not depend on other rows; None where kernels cannot promise it."""
    ours = isinstance(weights.head, DenseLinear | FourBitLinear)      # they keep a row's bits by construction
    if weights.device.type != "cpu" or weights.dtype not in NEAR or not (ours or packs_dtype(weights.dtype)):
        return None
    return layout_for(weights.shape, weights.dtype, not ours)


def compiled_attention(shape: LlamaConfig, dtype: torch.dtype, device: torch.device) -> PathAttention | None:
    """The compiled attention for layers of this shape, where it passes its trial."""
    found = layout_for(shape, dtype, packed=False) if device.type == "cpu" else None
    return found if isinstance(found, PathAttention) else None


@cache
def layout_for(shape: LlamaConfig, dtype: torch.dtype = torch.bfloat16,
               packed: bool = True) -> Layout | PathAttention | None:
    """The attention for weights of this shape on the CPU; None where a trial fails.

    `packed` weights are oneDNN's, whose products are tried as well; others are in our own code. In single precision
    torch's products depend on the rows, so there only the compiled attention keeps the promise.
    """
    with torch.inference_mode():
        if packed and not linears_agree(shape, dtype=dtype):
            return None
        compiled = path_attention(shape.heads, shape.kv_heads, shape.head_dim, dtype)
        if compiled and paths_agree(compiled):
            return compiled
        return torch_layout(shape) if dtype == torch.bfloat16 and packs_dtype(dtype) else None


def linears_agree(shape: LlamaConfig, rows: tuple[int, ...] = ROWS, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Whether the packed layers of this shape give a row the same bits alone and among others."""
    sizes = (((shape.heads + 2 * shape.kv_heads) * shape.head_dim, shape.hidden), (2 * shape.mlp, shape.hidden),
             (shape.hidden, shape.heads * shape.head_dim), (shape.hidden, shape.mlp))
    return all(linear_agrees(*size, rows, dtype) for size in sizes)


def torch_layout(shape: LlamaConfig, rows: tuple[int, ...] = ROWS, counts: tuple[int, ...] = COUNTS) -> Layout | None:
    """The layout of columns with which torch's kernels keep a row's bits; None where a trial fails."""
    layout = Layout.of(shape.group, shape.kv_heads, shape.head_dim)
    agree = all(keys_agree(layout, shape.kv_heads, shape.head_dim, count, rows)
                and values_agree(layout, shape.kv_heads, shape.head_dim, count, rows) for count in counts)
    return layout if agree else None


def paths_agree(attention: PathAttention, context: int = 75, parents: Parents = TREE) -> bool:
    """Whether the compiled attention gives a node the bits of plain decoding, and the numbers of a plain softmax."""
    heads, kv_heads, d, count = attention.heads, attention.kv_heads, attention.head_dim, len(parents)
    dice, near = torch.Generator().manual_seed(context), NEAR[attention.dtype]
    cache = torch.randn(2, kv_heads, context + count, d, generator=dice).to(attention.dtype)
    fed = torch.randn(count, heads + 2 * kv_heads, d, generator=dice).to(attention.dtype) / 2
    angles = torch.randn(count, d, generator=dice)
    cos, sin = angles.cos(), torch.cat((-angles[:, d // 2:].sin(), angles[:, d // 2:].sin()), -1)
    qkv, tree = fed.clone(), cache.clone()
    among = attention.rows(slice(context, context + count), context, parents, cos, sin)(qkv, *tree)
    for node, path in enumerate(paths_of(parents)):
        plain = cache.clone()
        for place, row in enumerate(path, context):
            alone = attention.rows(slice(place, place + 1), place + 1, (), cos[row:row + 1], sin[row:row + 1])(
                fed[row:row + 1].clone(), *plain)
        if not torch.equal(alone[0], among[node]) or (exact_attention(qkv[node, :heads], plain[:, :, :place + 1])
                                                      - among[node]).abs().max() > near:
            return False
    turned = fed[:, :heads + kv_heads].transpose(0, 1).float().contiguous()
    rotate(turned, cos, sin)
    found = torch.cat((qkv[:, :heads], tree[0, :, context:].transpose(0, 1)), 1).transpose(0, 1)
    return torch.allclose(found.float(), turned, rtol=near / 4, atol=near / 32) and torch.equal(
        tree[1, :, context:].transpose(0, 1), fed[:, heads + kv_heads:])


def exact_attention(q: Tensor, cache: Tensor) -> Tensor:
    """Attention of q [heads, d], already scaled, over keys and values [2, kv_heads, columns, d], in float64."""
    keys, values = cache.double().repeat_interleave(len(q) // cache.shape[1], 1)
    weights = torch.softmax(torch.einsum("hd,hcd->hc", q.double(), keys), -1)
    return torch.einsum("hc,hcd->hd", weights, values).flatten()


def linear_agrees(out: int, into: int, rows: tuple[int, ...] = ROWS, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Whether a packed layer gives a row the same bits alone, with one more and with many."""
    weight, x = cancelling(out, max(rows), into, dtype)
    layer = PackedLinear(weight)
    by_twos = torch.cat([layer(x[i:i + 2].contiguous()) for i in range(0, 16, 2)])
    alone = torch.cat([layer(x[i:i + 1].contiguous()) for i in range(16)])
    return torch.equal(alone, by_twos) and all(
        torch.equal(layer(x[:size].contiguous())[:16], by_twos[:size]) for size in rows)


def keys_agree(layout: Layout, kv_heads: int, head_dim: int, count: int, rows: tuple[int, ...] = ROWS) -> bool:
    """Whether q k^T has the same bits in either order, for any number of rows and of columns behind."""
    heads = [cancelling(layout.columns(count) + STEP, max(rows) * layout.group, head_dim, torch.bfloat16, seed)
             for seed in range(kv_heads)]
    k, q = (torch.stack(both) for both in zip(*heads, strict=True))
    few = max(2, layout.group)
    alone = products(q[:, :few], k[:, :layout.columns(count)])
    more = [products(q[:, :size * layout.group], k)[:, :few, :alone.shape[2]] for size in rows]
    other = torch.bmm(q, k.transpose(1, 2))[:, :few, :alone.shape[2]]
    return all(torch.equal(alone[:, :part.shape[1]], part) for part in (*more, other))


def values_agree(layout: Layout, kv_heads: int, head_dim: int, count: int, rows: tuple[int, ...] = ROWS) -> bool:
    """Whether sums over values have the same bits among other rows, with columns behind, and pairs between."""
    heads = [cancelling(head_dim, max(rows) * layout.group, count, torch.bfloat16, seed) for seed in range(kv_heads)]
    values, weights = torch.stack([v.T for v, _ in heads]), torch.stack([w for _, w in heads])
    few, columns = max(2, layout.group), layout.columns(count)
    alone = torch.bmm(*spread(weights[:, :few], values, torch.arange(count), columns))
    more = padded(count + 2 * TAIL)
    for size in rows:
        for where, wide in ((torch.arange(count), columns), (torch.arange(count), max(columns, more)),
                            (in_pairs(count), max(columns, more))):
            got = torch.bmm(*spread(weights[:, :size * layout.group], values, where, wide))[:, :few]
            if not torch.equal(got, alone[:, :got.shape[1]]):
                return False
    return True


def in_pairs(count: int) -> Tensor:
    """The columns of `count` values when the last `TAIL` are spread over twice as many, pair by pair."""
    start = count - TAIL
    return torch.cat((torch.arange(start), start + torch.arange(TAIL) + 2 * (torch.arange(TAIL) // 2)))


def spread(weights: Tensor, values: Tensor, where: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """The weights and values at these of `columns` columns; elsewhere the weight is zero and the value is not."""
    wide = weights.new_zeros(*weights.shape[:2], columns)
    wide[..., where] = weights
    long = values.new_full((len(values), columns, values.shape[2]), 3.0)
    long[:, where] = values
    return wide, long
