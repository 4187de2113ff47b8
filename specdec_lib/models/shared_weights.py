"""What a drafter reads of a model that transformers runs: its embedding, its output matrix, and a shape.

Knows nothing about the model's layers: a drafter's own layer is of the Llama family whatever the model is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.types import Refusal

EPS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")     # names of one number


@dataclass(frozen=True)
class OutputMatrix:
    """y = x W^T with the model's own W [V, hidden], which is not copied."""

    weight: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)

    def dense(self) -> Tensor:
        return self.weight


@dataclass(frozen=True)
class SharedWeights:
    """The part of `LlamaWeights` that drafters on hidden states need; every tensor is the model's own.

    `shape` describes a drafter's own layer: the model's width, heads, vocabulary and context, and angles of the default
    base. `head` is the output matrix alone: a model that scales or caps its logits does so after it.
    """

    family: str                                    # the config's model_type
    shape: LlamaConfig
    embedding: Tensor                              # [V, hidden]
    head: OutputMatrix
    sampled: tuple[Tensor, ...]                    # the tensors that a fingerprint samples

    @property
    def dtype(self):
        return self.embedding.dtype

    @property
    def device(self):
        return self.embedding.device


def shared_weights(model) -> SharedWeights:
    """The view of a causal language model; Refusal for one without a plain embedding and output matrix."""
    config, name = model.config.get_text_config(), type(model).__name__
    try:
        into, out = model.get_input_embeddings(), model.get_output_embeddings()
    except (AttributeError, NotImplementedError):  # transformers finds these by the names of modules
        into = out = None
    embedding, head = matrix(into), matrix(out)
    if embedding is None or head is None:
        raise unsupported(name, "it has no plain embedding and output matrix")
    if getattr(out, "bias", None) is not None:
        raise unsupported(name, "its output matrix has a bias")
    if embedding.shape != head.shape or embedding.shape[1] != getattr(config, "hidden_size", None):
        raise unsupported(name, f"its embedding {tuple(embedding.shape)} and output matrix {tuple(head.shape)} are not"
                                " both of its hidden size")
    try:
        shape = shape_of(config, len(head), embedding.data_ptr() == head.data_ptr())
    except (AttributeError, TypeError, ValueError) as error:
        raise unsupported(name, f"its config gives no layer of its own size ({error})") from None
    return SharedWeights(config.model_type, shape, embedding, OutputMatrix(head),
                         (*last_weights(model, embedding, head), embedding, head))


def shape_of(config, vocab: int, tied: bool) -> LlamaConfig:
    """The shape of a drafter's own layer; AttributeError, TypeError or ValueError where the config lacks a size."""
    heads, hidden = size(config, "num_attention_heads"), config.hidden_size
    eps = next((value for value in (getattr(config, name, None) for name in EPS) if value), 1e-5)
    return LlamaConfig(layers=config.num_hidden_layers, hidden=hidden, heads=heads,
                       kv_heads=size(config, "num_key_value_heads") or heads,
                       head_dim=size(config, "head_dim") or hidden // heads,
                       mlp=size(config, "intermediate_size") or 4 * hidden, vocab=vocab,
                       context=getattr(config, "max_position_embeddings", None) or 2048, eps=eps, tied=tied)


def size(config, name: str) -> Any:
    """A size that all layers have; None where they differ (Gemma 4, 3n)."""
    try:
        value = getattr(config, name, None)
    except RuntimeError:                           # transformers' where layers differ
        return None
    return None if isinstance(value, list) else value


def matrix(module) -> Tensor | None:
    """The weight [rows, hidden] of an embedding or a linear layer; None where it is stored otherwise."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    return weight.detach()


def last_weights(model, *known: Tensor) -> tuple[Tensor, ...]:
    """The last matrix besides the known ones and the last vector, which change when the model is trained further."""
    skip = {tensor.data_ptr() for tensor in known}
    free = [weight.detach() for weight in model.parameters() if weight.data_ptr() not in skip]
    return tuple(next(weight for weight in reversed(free) if weight.ndim == ndim) for ndim in (1, 2)
                 if any(weight.ndim == ndim for weight in free))


def unsupported(name: str, why: str) -> Refusal:
    return Refusal(f"features of this architecture are not available to a drafter: {name} is run by transformers, and"
                   f" {why}")
