"""A trainable decoder layer: the forward of `models/llama/forward.py` over padded batches, with gradients.

Matrices are fused as there (input norms folded in, attention's scale in the queries), so the
trained matrices are those that draft. They are kept in single precision and multiplied in bf16 where that is fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.weights import MATRICES


class TrainableLayer(nn.Module):
    """Weights `qkv`, `out`, `gate_up`, `down`, from tensors [out, in]."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor

    def __init__(self, shape: LlamaConfig, state: dict[str, Tensor]):
        super().__init__()
        self.shape = shape
        for name in MATRICES:
            setattr(self, name, nn.Parameter(state[name].float().clone()))

    def take(self, name: str, matrix: Tensor) -> None:
        """Replaces the matrix of this name."""
        with torch.no_grad():
            getattr(self, name).copy_(matrix)

    def heads(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, heads, S, d] and keys, values [B, kv_heads, S, d] of normed inputs [B, S, width]."""
        shape = self.shape
        qkv = F.linear(x, self.qkv).unflatten(-1, (-1, shape.head_dim)).transpose(1, 2)
        q, k, v = qkv.split((shape.heads, shape.kv_heads, shape.kv_heads), 1)
        return rotated(q, cos, sin), rotated(k, cos, sin), v

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values alone, as `heads` gives them."""
        shape = self.shape
        kv = F.linear(x, self.qkv[shape.heads * shape.head_dim:]).unflatten(-1, (-1, shape.head_dim)).transpose(1, 2)
        k, v = kv.chunk(2, 1)
        return rotated(k, cos, sin), v

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """The rest of the layer after the attention [B, heads, S, d], for hidden states [B, S, hidden]."""
        x = x + F.linear(attended.transpose(1, 2).flatten(-2), self.out)
        gate, up = F.linear(scaled(x, self.shape.eps), self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates x by these angles, signed as `rope_table` gives them."""
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def scaled(x: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean x^2 + eps) per row."""
    return F.rms_norm(x.float(), x.shape[-1:], None, eps)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of every row to itself and the rows before it; padding comes last, so no row sees it."""
    group = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
                                          is_causal=True, scale=1.0)


def fused_state(layer, head_dim: int) -> dict[str, Tensor]:
    """The plain matrices of one of the target's layers (`LayerWeights`), float32, from which a drafter starts.

    Biases and norms of single heads are left out; the drafter learns without them. It rotates queries and keys in
    every layer, also where the target does not.
    """
    state = {name: getattr(layer, name).dense().float() for name in MATRICES}
    if layer.q_norm is not None:                   # then the norm holds attention's scale
        queries = layer.out.dense().shape[1]
        state["qkv"] = state["qkv"].clone()        # it may be the target's own matrix
        state["qkv"][:queries] *= head_dim ** -0.5
    return state


def layers_of(module: nn.Module) -> Iterable[TrainableLayer]:
    """The `layers` of a drafter, which are trainable layers; a ModuleList does not say of what it is one."""
    return cast(Iterable[TrainableLayer], module.layers)


def load_tensors(module: nn.Module, names: Iterable[str], state: Mapping[str, Tensor]) -> None:
    """Puts stored tensors into a drafter: its parameters of these names, and the matrices of its `layers`."""
    with torch.no_grad():
        for name in names:
            getattr(module, name).copy_(state[name])
    for i, layer in enumerate(layers_of(module)):
        for name in MATRICES:
            layer.take(name, state[f"layers.{i}.{name}"])


def kept_tensors(module: nn.Module, names: Iterable[str]) -> dict[str, Tensor]:
    """The tensors that `take_over` reads: these parameters, and the layers' matrices as `layers.0.qkv` and so on."""
    layers = {f"layers.{i}.{name}": getattr(layer, name).detach() for i, layer in enumerate(layers_of(module))
              for name in MATRICES}
    return layers | {name: getattr(module, name).detach() for name in names}
