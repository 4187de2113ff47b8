"""A small draft model from a checkpoint: a few trained layers between the target's embedding and some of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from specdec_lib.models.heads import Once, output_rows, placed, vocabulary
from specdec_lib.models.linear import Linear
from specdec_lib.models.transformer import Transformer
from specdec_lib.models.weights import Layer, Weights


def small_weights(state: Mapping[str, Tensor], target: Weights) -> Weights:
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
        put = placed(state, {f"layers.{i}.{name}": size for name, size in sizes.items()}, target)
        layers.append(Layer(*map(Linear, put.values())))
    ids = vocabulary(state, target)
    norm = placed(state, {"norm": (h,)}, target)["norm"]
    plain = replace(shape, layers=count, qkv_bias=False, out_bias=False, mlp_bias=False, head_norms=False)
    return Weights(plain, target.embedding, tuple(layers), norm, output_rows(target, ids), ids)


PACKED = Once(lambda checkpoint, target: small_weights(checkpoint.state, target))


def draft_lm(state: Mapping[str, Tensor], target: Weights) -> Transformer:
    """The draft model of these tensors, with an empty cache; its head has the rows `ids` alone."""
    return Transformer(small_weights(state, target))
