"""A small draft model: a few trained layers between the target's embedding and some of its output rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from specdec_lib.heads.base import (
    PerTarget,
    TargetWeights,
    checked_tensors,
    draft_vocabulary,
)
from specdec_lib.heads.drafter_linear import drafter_layer, output_rows
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import LlamaWeights


def draft_lm_weights(state: Mapping[str, Tensor], target: TargetWeights) -> LlamaWeights:
    """The layers `layers.0`, `layers.1`, ... of a checkpoint's tensors with the target's embedding and output rows.

    Refusal where they do not fit the target.
    """
    shape, h = target.shape, target.shape.hidden
    heads = shape.heads * shape.head_dim
    sizes = {"qkv": (heads + 2 * shape.kv_heads * shape.head_dim, h), "out": (h, heads), "gate_up": (-1, h),
             "down": (h, -1)}
    count = 1
    while f"layers.{count}.qkv" in state:
        count += 1
    layers = []
    for i in range(count):
        put = checked_tensors(state, {f"layers.{i}.{name}": size for name, size in sizes.items()}, target)
        layers.append(drafter_layer(put, f"layers.{i}.", target))
    ids = draft_vocabulary(state, target)
    norm = checked_tensors(state, {"norm": (h,)}, target)["norm"]
    plain = replace(shape, layers=count, qkv_bias=False, out_bias=False, mlp_bias=False, head_norms=False)
    return LlamaWeights(plain, target.embedding, tuple(layers), norm, output_rows(target, ids), ids)


PACKED = PerTarget(lambda checkpoint, target: draft_lm_weights(checkpoint.state, target))


def draft_lm(state: Mapping[str, Tensor], target: TargetWeights) -> Transformer:
    """The draft model of these tensors, with an empty cache; its head has the rows `ids` alone."""
    return Transformer(draft_lm_weights(state, target))
