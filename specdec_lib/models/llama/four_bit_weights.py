"""Weights of a Llama-family decoder as 4-bit codes: the checkpoint's own where it holds some, else rounded.

Embedding and norms stay bfloat16. The head is in 8 bits unless the checkpoint holds it in 4: it was Q8_0 in the GGUF of
the default target, and 8 bits cost a rounded head little. Norms and attention's 1 / sqrt(head size) stay beside the
codes (`FourBitLinear`), so the codes are never changed.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from specdec_lib.models.llama.compiled_linear import CompiledLayer
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.four_bit_linear import FourBitLinear, compiled_code
from specdec_lib.models.llama.group_codes import codes_of, joined
from specdec_lib.models.llama.weights import Get, LayerWeights, LlamaWeights, checked_count, fuse
from specdec_lib.types import Refusal

NARROW = torch.bfloat16                            # of all that is not in codes
OWN = "the checkpoint's own"
INT4 = "int4"
Dtype = torch.dtype | Literal["int4"]              # of the weights


def weights_of(shape: LlamaConfig, get: Get, dtype: Dtype, device, layers: int | None = None,
               ids: Tensor | None = None) -> LlamaWeights:
    """Weights in this dtype; Refusal for 4 bits on another device than the CPU, or without a C compiler."""
    if not isinstance(dtype, str):
        return fuse(shape, get, dtype, device, layers, ids)
    refuse_device(str(device))
    return fuse_four_bit(shape, get, layers, ids)


def refuse_device(device: str) -> None:
    """Raises Refusal for a device that has no 4-bit kernels."""
    if device != "cpu":
        raise Refusal(f"--dtype int4 runs on the CPU alone, got --device {device}: take --device cpu, or"
                      " --dtype bfloat16")


def fuse_four_bit(shape: LlamaConfig, get: Get, layers: int | None = None, ids: Tensor | None = None) -> LlamaWeights:
    """Weights in the layout of the forward: the first `layers` layers, the rows `ids` of the head."""
    compiled_code()                                # refused before anything is read
    count = checked_count(shape, layers)
    embedding = get("model.embed_tokens.weight")
    head = codes_of(embedding if shape.tied else get("lm_head.weight"), 8)
    made = tuple(four_bit_layer(shape, get, f"model.layers.{i}.", i not in shape.unturned) for i in range(count))
    own = [head.own, *(part.own for layer in made for part in (layer.qkv, layer.out, layer.gate_up, layer.down)
                       if isinstance(part, FourBitLinear))]
    return LlamaWeights(shape, embedding.to(NARROW), made, get("model.norm.weight").to(NARROW),
                        FourBitLinear(head if ids is None else head.rows(ids)), ids, four_bit=provenance(own))


def four_bit_layer(shape: LlamaConfig, get: Get, prefix: str, turned: bool) -> LayerWeights:
    """One layer: query, key and value become one matrix, gate and up another."""
    def join(names: tuple[str, ...], biased: bool, norm: str | None = None, scale: float = 1.0) -> FourBitLinear:
        """Joins matrices behind the same norm; outputs of the first are multiplied by `scale`."""
        parts = [codes_of(get(f"{prefix}{name}.weight")) for name in names]
        factors = [torch.ones(len(part.codes)) for part in parts]
        factors[0] *= scale
        biases = [get(f"{prefix}{name}.bias").float() for name in names] if biased else []
        return FourBitLinear(joined(parts), None if norm is None else get(prefix + norm),
                             None if scale == 1 else torch.cat(factors),
                             torch.cat([biases[0] * scale, *biases[1:]]) if biased else None)

    scale = shape.head_dim ** -0.5
    q_norm = k_norm = None
    if shape.head_norms:
        q_norm, k_norm = (get(f"{prefix}self_attn.{name}_norm.weight").to(NARROW) for name in "qk")
        q_norm = q_norm * scale
    qkv = join(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), shape.qkv_bias, "input_layernorm.weight",
               1.0 if shape.head_norms else scale)
    out = join(("self_attn.o_proj",), shape.out_bias)
    gate_up = join(("mlp.gate_proj", "mlp.up_proj"), shape.mlp_bias, "post_attention_layernorm.weight")
    down = join(("mlp.down_proj",), shape.mlp_bias)
    return LayerWeights(qkv, out, gate_up, down, q_norm, k_norm, turned,
                        CompiledLayer(qkv, out, gate_up, down, shape.eps))


def provenance(own: list[bool]) -> str:
    """Whose codes these are, in words."""
    if all(own):
        return OWN
    return (f"rounded, {own.count(False)} of {len(own)} matrices, to 4 bits and the head to 8: another model than the"
            " checkpoint")
