"""Linear layers: on a CPU the weights are packed once for oneDNN, elsewhere they stay plain.

Packing needs one copy while it runs; the caller then frees the plain weights. Measured on a 2-core
AVX-512 machine, hidden 576, bfloat16: a packed layer takes about half the time of `F.linear`.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor


class PackedLinear:
    """y = x W^T + b for x [n, in], with W [out, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.out, self.bias, self.packed = weight.shape[0], bias, packs(weight)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, None) if self.packed else weight.contiguous()
        self.product = torch.ops.mkldnn._linear_pointwise.default if self.packed else None   # looked up once

    def __call__(self, x: Tensor) -> Tensor:
        if self.product is not None:
            return self.product(x, self.weight, self.bias, "none", [], "")
        return F.linear(x, self.weight, self.bias)

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
