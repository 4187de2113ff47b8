"""Linear layers of trained drafters: on a CPU they multiply the 8-bit codes in which checkpoints store them.

A drafter is fed a few rows at a time, so its time is that of reading its weights, and codes are half of bfloat16. The
rows of a draft may differ from those of bfloat16 by rounding; what is emitted does not, since the target verifies it.
A float32 target has float32 drafters, and a GPU has none in codes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from specdec_lib.checkpoints.quantize import from_int8, to_int8
from specdec_lib.models.llama.four_bit_linear import FourBitLinear, compiled_with
from specdec_lib.models.llama.group_codes import GROUP, GroupCodes, codes_of
from specdec_lib.models.llama.weights import MATRICES, LayerWeights, Linear, LlamaWeights, fused_layer, linear
from specdec_lib.models.shared_weights import SharedWeights

BITS = 8
STORED = 2 * GROUP                                 # inputs that share a scale in the storage scheme int8/64


def uses_codes(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether drafters multiply codes beside a target of this device and activation dtype."""
    return device.type == "cpu" and dtype == torch.bfloat16 and compiled_with() is not None


def drafter_size(target: LlamaWeights | SharedWeights) -> float:
    """The size of a number of a drafter's matrices, with its share of a scale, over that of one of this target's."""
    codes = BITS + 16 / GROUP                      # a scale of 16 bits for each group
    return codes / (8 * target.dtype.itemsize) if uses_codes(target.device, target.dtype) else 1.0


def drafter_linear(weight: Tensor, target: LlamaWeights | SharedWeights) -> Linear:
    """The layer of this matrix [out, in] in a drafter of this target: as codes, or in the target's dtype."""
    if uses_codes(target.device, target.dtype):
        return FourBitLinear(stored_codes(weight))
    return linear(weight.to(target.device, target.dtype).contiguous())


def drafter_layer(state: Mapping[str, Tensor], prefix: str, target: LlamaWeights | SharedWeights) -> LayerWeights:
    """A decoder layer of the four matrices with this prefix, without biases and norms of heads."""
    qkv, out, gate_up, down = (drafter_linear(state[f"{prefix}{name}"], target) for name in MATRICES)
    return LayerWeights(qkv, out, gate_up, down, fused=fused_layer(qkv, out, gate_up, down, target.shape.eps))


def output_rows(target: LlamaWeights | SharedWeights, ids: Tensor) -> Linear:
    """The target's own output rows of these tokens: the head of every drafter with a restricted vocabulary."""
    if isinstance(target.head, FourBitLinear):     # codes already, and they may be the checkpoint's own
        return target.head.rows(ids)
    rows = target.embedding if target.shape.tied else target.head.dense()
    return drafter_linear(rows[ids.to(rows.device)], target)


def stored_codes(weight: Tensor) -> GroupCodes:
    """The codes of a matrix [out, in] that was stored as int8/64, bit for bit; any other matrix is rounded to codes."""
    weight = weight.float()
    if weight.shape[1] % STORED == 0:
        parts = to_int8(weight, STORED)
        if torch.equal(from_int8(**parts), weight):
            return GroupCodes(parts["codes"], parts["scales"].repeat_interleave(STORED // GROUP, 1), None, BITS, True)
    return codes_of(weight, BITS)
