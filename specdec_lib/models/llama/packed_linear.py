"""Linear layers: on a CPU the weights are packed once for oneDNN, elsewhere they stay plain.

Packing needs one copy while it runs; the caller then frees the plain weights.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor


class PackedLinear:
    """y = x W^T + b for x [n, in], with W [out, in].

    A packed layer gives a row the same bits for every n. Kernels for a single row may add in another order (they do
    where `in` is large): such a row is computed twice.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.out, self.bias, self.packed = weight.shape[0], bias, packs(weight)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, None) if self.packed else weight.contiguous()
        self.product = torch.ops.mkldnn._linear_pointwise.default if self.packed else None   # looked up once
        self.doubles = self.packed and one_row_differs(*weight.shape, weight.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        if self.product is None:
            return F.linear(x, self.weight, self.bias)
        if self.doubles and len(x) == 1:
            return self.product(x.expand(2, -1), self.weight, self.bias, "none", [], "")[:1]
        return self.product(x, self.weight, self.bias, "none", [], "")

    def dense(self) -> Tensor:
        """The plain weight [out, in]."""
        return self.weight.to_dense() if self.packed else self.weight

    def rows(self, ids: Tensor) -> PackedLinear:
        """The same layer with these output rows alone."""
        return PackedLinear(self.dense()[ids].contiguous(), None if self.bias is None else self.bias[ids])


def packs(weight: Tensor) -> bool:
    """Whether oneDNN has packed kernels for this weight on this processor."""
    return weight.device.type == "cpu" and packs_dtype(weight.dtype)


@cache
def packs_dtype(dtype: torch.dtype) -> bool:
    """Whether a small layer of this dtype works; tried once, because builds without oneDNN lack the operators."""
    if dtype == torch.bfloat16 and not bfloat16_is_fast() or dtype not in (torch.bfloat16, torch.float32):
        return False
    try:
        weight = torch.ops.mkldnn._reorder_linear_weight(torch.eye(16, dtype=dtype), None)
        out = torch.ops.mkldnn._linear_pointwise(torch.ones(1, 16, dtype=dtype), weight, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return bool((out == 1).all())


def bfloat16_is_fast() -> bool:
    """Whether this processor multiplies bfloat16 without emulation."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False


@cache
def one_row_differs(out: int, into: int, dtype: torch.dtype) -> bool:
    """Whether a single row through a packed layer of this shape has other bits than the same row beside another."""
    weight, x = cancelling(out, 2, into, dtype)
    packed, product = torch.ops.mkldnn._reorder_linear_weight(weight, None), torch.ops.mkldnn._linear_pointwise.default
    alone = product(x[:1].contiguous(), packed, None, "none", [], "")
    return not torch.equal(alone, product(x, packed, None, "none", [], "")[:1])


def cancelling(out: int, rows: int, into: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor]:
    """W [out, in] and x [rows, in] whose products are zero but for rounding, so that they show the order of a sum."""
    dice = torch.Generator().manual_seed(seed)
    half = into // 2
    other, order = torch.randperm(half, generator=dice), torch.randperm(2 * half, generator=dice)
    w, x = (torch.randn(count, half, generator=dice) for count in (min(out, 256), rows))
    w, x = torch.cat((w, -w[:, other]), 1)[:, order], torch.cat((x, x[:, other]), 1)[:, order]
    w, x = (F.pad(part, (0, into - 2 * half)).to(dtype) for part in (w, x))
    return w.repeat(-(-out // len(w)), 1)[:out].contiguous(), x.contiguous()
