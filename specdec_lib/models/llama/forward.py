"""The forward of some rows through decoder layers; it writes their keys and values into the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.llama.attention import attend, attend_by_products, use_plain_products, widened, widened_mask
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.compiled_layers import CachedRows, KeptOutputs
from specdec_lib.models.llama.compiled_linear import LinearCode, normed, reads
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.invariant_attention import AttentionPart, Layout, Parents, attend_in_order, parts_of
from specdec_lib.models.llama.packed_linear import PackedLinear
from specdec_lib.models.llama.path_attention import PathAttention, PathRows
from specdec_lib.models.llama.weights import LayerWeights, Linear, LlamaWeights

Attend = Callable[[Tensor, LayerWeights, LlamaConfig], Tensor]     # `attended` over the caches of these rows
GRAIN, LANES = 32768, 16                           # numbers that torch leaves to one thread; of its widest vector


@dataclass(frozen=True)
class LayerView:
    """The cache rows, angles and mask of some rows, the same for every layer."""

    where: slice | Tensor                          # their rows in the cache
    stop: int                                      # columns that any of them may see
    cos: Tensor                                    # [rows, head_dim]
    sin: Tensor
    block: Tensor | None = None                    # the mask for plain products, see attention.py
    full: Tensor | None = None                     # the mask for the fused kernel
    plain: bool = False
    parts: tuple[AttentionPart, ...] = ()          # attention whose bits do not depend on the other rows, where given
    products: bool = False                         # three products and a softmax instead of the fused kernel
    paths: PathRows | None = None                  # the same in compiled code

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attention of q [heads, rows, d] over keys and values [kv_heads, columns, d]: [rows, heads * d]."""
        if self.parts:
            return attend_in_order(q, keys, values, self.parts)
        if self.products and self.full is not None:
            return attend_by_products(q, keys, values, self.full)
        return attend(q, keys, values, self.block, self.full, self.plain)


def view_of(where: slice, cos: Tensor, sin: Tensor, block: Tensor | None, group: int, capacity: int) -> LayerView:
    """The view of rows that see all columns before them except those hidden by `block`, for the faster attention."""
    rows, stop = where.stop - where.start, where.stop
    if not use_plain_products(rows, stop, cos.dtype, cos.device):
        return LayerView(where, stop, cos, sin, block, widened_mask(block, rows, stop, group))
    block, stop = widened(block, rows, stop, capacity, cos.dtype)
    return LayerView(where, stop, cos, sin, block, None, True)


def block_view(attention: PathAttention, where: slice, context: int, cos: Tensor, sin: Tensor) -> LayerView:
    """The view of rows of which those from `context` on see each other, and all of them are fed; compiled."""
    return LayerView(where, where.stop, cos, sin, paths=attention.block(where, context, cos, sin))


def invariant_view(layout: Layout | PathAttention, where: slice, held: int, context: int, parents: Parents, cos: Tensor,
                   sin: Tensor) -> LayerView:
    """The view of rows whose bits do not depend on each other; those from `context` on are nodes with these parents.

    `held` counts the rows of the cache whose values must be kept.
    """
    if isinstance(layout, PathAttention):
        return LayerView(where, where.stop, cos, sin, paths=layout.rows(where, context, parents, cos, sin))
    parts = parts_of(layout, where.start, where.stop, held, context, parents)
    return LayerView(where, max(where.stop, *(part.columns for part in parts)), cos, sin, parts=parts)


class Columns(NamedTuple):
    """One layer's part of the cache for some rows."""

    keys: Tensor                                   # [kv_heads, columns, head_dim]
    values: Tensor
    slots: Tensor                                  # to be written, [2, kv_heads, rows, head_dim]


def columns(kv: Tensor, view: LayerView) -> Iterator[Columns]:
    """One `Columns` per layer of kv [layers, 2, kv_heads, capacity, head_dim]; one slicing for all saves time."""
    keys, values = kv[:, :, :, :view.stop].unbind(1)
    slots = kv[:, :, :, view.where] if isinstance(view.where, slice) else kv
    return map(Columns, keys.unbind(0), values.unbind(0), slots.unbind(0))


def decoder_layer(x: Tensor, w: LayerWeights, shape: LlamaConfig, kv: Columns, view: LayerView) -> Tensor:
    """Applies one layer to x [rows, hidden] and writes its keys and values into the cache."""
    return layer_after(x, before_attention(x, w, shape), w, shape, partial(attended, kv=kv, view=view))


def before_attention(x: Tensor, w: LayerWeights, shape: LlamaConfig) -> Tensor:
    """Queries, keys and values [rows, (heads + 2 kv_heads) * head_dim] of x [rows, hidden]."""
    return w.qkv(scaled(x, shape.eps)) if w.fused is None else w.fused.heads(x)


def layer_after(x: Tensor, qkv: Tensor, w: LayerWeights, shape: LlamaConfig, attend: Attend) -> Tensor:
    """The rest of a layer, given x and its queries, keys and values [rows, (heads + 2 kv_heads) * head_dim]."""
    return after_attention(x, attend(qkv.view(len(x), -1, shape.head_dim), w, shape), w, shape)


def after_attention(x: Tensor, seen: Tensor, w: LayerWeights, shape: LlamaConfig) -> Tensor:
    """The rest of a layer, given x and what its rows attended to [rows, heads * head_dim]."""
    if w.fused is not None:
        return w.fused.rest(x, seen)
    x = w.out(seen).add_(x)
    gate, up = w.gate_up(scaled(x, shape.eps)).chunk(2, -1)
    return onto(x, w.down, silu(gate).mul_(up))


def onto(x: Tensor, layer: Linear, y: Tensor) -> Tensor:
    """x + layer(y). Where the weight lies plain, as on a GPU, in x itself: one kernel there, which rounds once."""
    if isinstance(layer, PackedLinear) and layer.product is None and layer.bias is None:
        return x.addmm_(y, layer.weight.t())
    return layer(y).add_(x)


def silu(gate: Tensor) -> Tensor:
    """silu of [rows, mlp]; in single precision on a CPU a number's bits do not depend on where threads share the work.

    Where a thread's share ends within a vector, torch takes another function for the last numbers: then a thread alone
    computes as many rows at once as torch leaves to one.
    """
    if gate.is_cuda or gate.dtype != torch.float32 or gate.numel() <= GRAIN:
        return F.silu(gate)
    shares = min(torch.get_num_threads(), -(-gate.numel() // GRAIN))
    if -(-gate.numel() // shares) % LANES == 0:
        return F.silu(gate)
    return torch.cat([F.silu(rows) for rows in gate.split(max(1, GRAIN // gate.shape[1]))])


def attended(qkv: Tensor, w: LayerWeights, shape: LlamaConfig, kv: Columns, view: LayerView) -> Tensor:
    """Attention [rows, heads * d] of qkv [rows, heads + 2 kv_heads, d], which it may change; fills the cache."""
    rows, heads, kv_heads, d = len(qkv), shape.heads, shape.kv_heads, shape.head_dim
    if view.paths is not None:
        if w.q_norm is not None:
            for part, norm in ((qkv[:, :heads], w.q_norm), (qkv[:, heads:heads + kv_heads], w.k_norm)):
                part.copy_(F.rms_norm(part.contiguous(), (d,), norm, shape.eps))
        return (view.paths if w.turned else view.paths.still)(qkv, kv.keys, kv.values)
    qkv = qkv.transpose(0, 1).contiguous()                                               # [heads, rows, d]
    turned = qkv[:heads + kv_heads]
    if w.q_norm is not None:
        turned[:heads] = F.rms_norm(turned[:heads], (d,), w.q_norm, shape.eps)
        turned[heads:] = F.rms_norm(turned[heads:], (d,), w.k_norm, shape.eps)
    if w.turned:
        rotate(turned, view.cos, view.sin)
    new = qkv[heads:].view(2, kv_heads, rows, d)
    if isinstance(view.where, slice):
        kv.slots.copy_(new)
    else:
        kv.slots.index_copy_(2, view.where, new)
    return view.attend(qkv[:heads], kv.keys, kv.values)


def through_layers(x: Tensor, weights: LlamaWeights, cache: KVCache, view: LayerView, first: int, last: int) -> Tensor:
    """Applies layers `first` to `last` to these rows and keeps the tapped hidden states in the cache."""
    if first == 0:
        keep_taps(x, weights, cache, view, 0)
    if view.paths is not None and weights.together is not None:
        x = weights.together(x, [cached_rows(cache, view.paths, view.where)], first, last)
        if last == len(weights.layers):
            keep_taps(x, weights, cache, view, last)                                         # it is normed
        return x
    layers = weights.layers[first:last]
    for i, (w, kv) in enumerate(zip(layers, columns(cache.kv[first:last], view), strict=True), first + 1):
        x = decoder_layer(x, w, weights.shape, kv, view)
        keep_taps(x, weights, cache, view, i)
    return x


def cached_rows(cache: KVCache, paths: PathRows, where: slice | Tensor) -> CachedRows:
    """Rows of this cache for the compiled layers, with what is tapped of them."""
    kept = None if cache.features is None else KeptOutputs(cache.taps, cache.features[where])
    return CachedRows(cache.kv, paths, kept)


def keep_taps(x: Tensor, weights: LlamaWeights, cache: KVCache, view: LayerView, level: int) -> None:
    """Keeps x [rows, hidden], the hidden states after `level` layers, where the cache taps them."""
    for place, tap in enumerate(cache.taps):
        if tap == level:
            assert cache.features is not None      # there are taps
            cache.features[view.where, place] = weights.normed(x) if tap == len(weights.layers) else x


def rotate(turned: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Turns [heads, rows, d] by the angles of the rows [rows, d]; rounds once where these are of a wider dtype.

    In half precision the bits of `addcmul_` depend on the number of rows; in single precision, rounded once, not.
    """
    wide = turned if cos.dtype == turned.dtype else turned.to(cos.dtype)
    other = wide.roll(turned.shape[-1] // 2, -1)
    wide.mul_(cos).addcmul_(other, sin)
    if wide is not turned:
        turned.copy_(wide)


def scaled(x: Tensor, eps: float, code: LinearCode | None = None) -> Tensor:
    """x / sqrt(mean x^2 + eps) per row: the norm without its weight; in compiled code where that reads x.

    Elsewhere a row joined with its own negative has mean zero, so the fused layer norm of both is the root mean square
    norm of each, rounded once; it is faster than `F.rms_norm`, which torch runs as single steps on a CPU.
    """
    if reads(code, x):
        return normed(code, x, None, eps)
    hidden = x.shape[-1]
    if x.is_cuda:                                  # one kernel there
        return F.rms_norm(x, (hidden,), None, eps)
    return torch.layer_norm(torch.cat((x, -x), -1), (2 * hidden,), None, None, eps)[:, :hidden].contiguous()
