"""A published EAGLE head as a drafter: what its rows compute. `EagleHead` drafts with it as with one of ours.

The layouts and their sources stand in `eagle_layouts.py`. With RMS(x) = x / sqrt(mean x^2 + eps) and weights w of
norms, a row with the embedding e and the feature g computes

- EAGLE-1: x = fc [e, g]; attention reads x without a norm and is added to x; logits are the target's output matrix
  times the row's output;
- EAGLE-3: attention reads [w1 RMS(e), w2 RMS(g)] and is added to g, or with `norm_before_residual` to w2 RMS(g); logits
  are its own output matrix times w3 RMS(output). The g of a committed token is fc of the tapped states.

Then follows the gated MLP of a Llama layer. Weights of norms before a linear layer are multiplied into it, and so is
attention's 1 / sqrt(head size). Tested on random weights against a plain forward; no published head has been run yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.base import TargetWeights, drafter_weights, output_matrix, real_tensor, shared_weights
from specdec_lib.heads.eagle_layouts import EAGLE1, EagleLayout, layout_of
from specdec_lib.models.llama.compiled_linear import normed
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.forward import Attend, layer_after, scaled
from specdec_lib.models.llama.weights import (
    Get,
    LayerWeights,
    Linear,
    code_of,
    fused_layer,
    linear,
    read_config,
    reader,
    tensor_sizes,
)
from specdec_lib.types import LM, Refusal


@dataclass(frozen=True)
class Eagle1Network:
    """EAGLE-1's and EAGLE-2's rows, packed for one target."""

    shape: LlamaConfig
    embedding: Tensor                              # [V, hidden]
    ids: Tensor                                    # [V] all tokens
    fc: Linear                                     # embedding and feature, concatenated -> hidden
    layer: LayerWeights                            # its qkv reads what `fc` gives, without a norm
    head: Callable[[Tensor], Tensor]               # the target's output matrix, or its own
    text: None = None                              # it drafts all tokens
    free: list[Any] = field(init=False, default_factory=list, repr=False, compare=False)

    def feature(self, taps: Tensor) -> Tensor:
        return taps[:, 0]

    def output(self, g: Tensor, tokens: Tensor, attend: Attend) -> Tensor:
        x = self.fc(torch.cat((F.embedding(tokens, self.embedding), g), -1))
        return layer_after(x, self.layer.qkv(x), self.layer, self.shape, attend)

    def readout(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Eagle3Network:
    """EAGLE-3's rows, packed for one target."""

    shape: LlamaConfig
    embedding: Tensor                              # [V, hidden]
    ids: Tensor                                    # [rows] the draft vocabulary
    fc: Linear                                     # concatenated taps -> hidden
    layer: LayerWeights                            # its qkv reads embedding and feature, concatenated
    norm: Tensor                                   # [hidden], before the head
    head: Linear
    taps_norm: Tensor | None                       # [taps * hidden], where all taps are normed together
    tap_norms: bool                                # each tap is normed, by weights that are in `fc`
    hidden_norm: Tensor | None                     # [hidden], where the residual is the normed feature
    norm_output: bool                              # a row's output is what the head reads
    text: None = None                              # its output rows are its own: it drafts no other tokens
    free: list[Any] = field(init=False, default_factory=list, repr=False, compare=False)

    def feature(self, taps: Tensor) -> Tensor:
        rows, eps = taps.reshape(len(taps), -1), self.shape.eps
        if self.taps_norm is not None:
            rows = F.rms_norm(rows, (rows.shape[1],), self.taps_norm, eps)
        if self.tap_norms:
            rows = scaled(rows.reshape(-1, self.shape.hidden), eps, code_of(self.fc)).view(len(taps), -1)
        return self.fc(rows)

    def output(self, g: Tensor, tokens: Tensor, attend: Attend) -> Tensor:
        eps, code = self.shape.eps, code_of(self.layer.qkv)
        if self.hidden_norm is None:
            normed = scaled(g, eps, code)          # its weight is in qkv
        else:
            g = normed = F.rms_norm(g, (self.shape.hidden,), self.hidden_norm, eps)
        pair = torch.cat((scaled(F.embedding(tokens, self.embedding), eps, code), normed), -1)
        x = layer_after(g, self.layer.qkv(pair), self.layer, self.shape, attend)
        return self.normed(x) if self.norm_output else x

    def readout(self, x: Tensor) -> Tensor:
        return x if self.norm_output else self.normed(x)

    def normed(self, x: Tensor) -> Tensor:
        return normed(code_of(self.head), x, self.norm, self.shape.eps)


@dataclass(frozen=True, eq=False)
class PublicEagle:
    """A published head that fits one target. `network(weights)` reads and packs its tensors; `meta` names its taps."""

    layout: EagleLayout
    read: Get = field(repr=False)                  # a tensor by its name in the folder
    ids: Tensor = field(repr=False)                # [rows] the target's tokens that it can draft

    @property
    def meta(self) -> Mapping[str, Any]:
        return {"taps": list(self.layout.taps)}

    def network(self, weights: TargetWeights) -> Eagle1Network | Eagle3Network:
        """The head's rows on the device of these weights, the target's, in the dtype of its drafters."""
        weights = drafter_weights(weights)
        parts = HeadParts(self.layout, self.read, weights.device, weights.dtype)
        embedding = parts.put("embed_tokens.weight", weights.embedding)
        if embedding is not weights.embedding and torch.equal(embedding, weights.embedding):
            embedding = weights.embedding          # most heads hold a copy of it
        make = eagle1_network if self.layout.kind == EAGLE1 else eagle3_network
        return make(parts, embedding, self.ids.to(weights.device), weights)


@dataclass(frozen=True)
class HeadParts:
    """Tensors of a head by our names, in the dtype of one target; products are rounded to it once."""

    layout: EagleLayout
    read: Get
    device: torch.device
    dtype: torch.dtype

    def wide(self, name: str) -> Tensor:
        """A tensor in at least single precision; Refusal where it holds what is no number."""
        return real_tensor(self.layout.name, self.layout.names[name], self.read,
                           torch.promote_types(self.dtype, torch.float32))

    def put(self, name: str, otherwise: Tensor | None = None) -> Tensor:
        """A tensor on the device, or what stands for one that the folder does not have."""
        if otherwise is not None and name not in self.layout.names:
            return otherwise
        return self.wide(name).to(self.device, self.dtype)

    def linear(self, *modules: str, columns: Tensor | None = None, scale: float = 1.0) -> Linear:
        """These modules as one layer; `scale` multiplies the first, `columns` [in] the inputs of all."""
        weights = [self.wide(f"{module}.weight") for module in modules]
        weight = torch.cat([weights[0] * scale, *weights[1:]])
        weight = weight if columns is None else weight * columns
        biases = None
        if any(f"{module}.bias" in self.layout.names for module in modules):
            biases = torch.cat([self.wide(f"{module}.bias") * (1.0 if at else scale)
                                if f"{module}.bias" in self.layout.names else torch.zeros(len(rows), dtype=rows.dtype)
                                for at, (module, rows) in enumerate(zip(modules, weights, strict=True))])
            biases = biases.to(self.device, self.dtype)
        return linear(weight.to(self.device, self.dtype), biases)

    def layer(self, columns: Tensor | None) -> LayerWeights:
        """The decoder layer; `columns` multiplies what its queries, keys and values read."""
        at, scale, q_norm, k_norm = "layer.self_attn.", self.layout.shape.head_dim ** -0.5, None, None
        if self.layout.shape.head_norms:
            q_norm, k_norm = (self.put(f"{at}{part}_norm.weight") for part in "qk")
            q_norm, scale = q_norm * scale, 1.0
        parts = (self.linear(*(f"{at}{part}_proj" for part in "qkv"), columns=columns, scale=scale),
                 self.linear(f"{at}o_proj"),
                 self.linear("layer.mlp.gate_proj", "layer.mlp.up_proj",
                             columns=self.wide("layer.post_attention_layernorm.weight")),
                 self.linear("layer.mlp.down_proj"))
        return LayerWeights(*parts, q_norm, k_norm, fused=fused_layer(*parts, eps=self.layout.shape.eps))


def eagle1_network(parts: HeadParts, embedding: Tensor, ids: Tensor, target: TargetWeights) -> Eagle1Network:
    own = "lm_head.weight" in parts.layout.names
    return Eagle1Network(parts.layout.shape, embedding, ids, parts.linear("fc"), parts.layer(None),
                         parts.linear("lm_head") if own else output_matrix(target))


def eagle3_network(parts: HeadParts, embedding: Tensor, ids: Tensor, target: TargetWeights) -> Eagle3Network:
    layout = parts.layout
    hidden_norm = parts.wide("layer.hidden_norm.weight")
    after = torch.ones_like(hidden_norm) if layout.norm_before_residual else hidden_norm
    columns = torch.cat((parts.wide("layer.input_layernorm.weight"), after))
    per_tap = [parts.wide(f"fc_norm.{i}.weight") for i in range(len(layout.taps))] if layout.fc_norm else []
    return Eagle3Network(layout.shape, embedding, ids,
                         parts.linear("fc", columns=torch.cat(per_tap) if per_tap else None), parts.layer(columns),
                         parts.put("norm.weight"), parts.linear("lm_head"),
                         parts.put("input_norm.weight") if layout.norm_before_fc else None, layout.fc_norm,
                         parts.put("layer.hidden_norm.weight") if layout.norm_before_residual else None,
                         layout.norm_output)


def load_public_eagle(folder: str | Path, target: LM, name: str = "") -> PublicEagle:
    """The published head in this folder, checked for this target; it is read through safetensors alone.

    Refusal for what is no head of a known layout, lacks a tensor, or was trained for another model, and for a target
    that keeps no hidden states.
    """
    folder, weights = Path(folder), shared_weights(target)
    layout = layout_of(name or folder.name, read_config(folder), tensor_sizes(folder), weights.shape)
    get = reader(folder)
    return PublicEagle(layout, get, draft_ids(layout, get))


def draft_ids(layout: EagleLayout, get: Get) -> Tensor:
    """The target's token [rows] of each row of the head's output; Refusal where `d2t` leads to none or to one twice."""
    ids = torch.arange(layout.rows)
    if layout.kind == EAGLE1 or "d2t" not in layout.names:
        return ids
    steps = get(layout.names["d2t"]).long()
    if layout.rows == layout.shape.vocab and bool(steps.any()):
        raise Refusal(f"{layout.name} drafts the whole vocabulary and has a d2t that is not zero, which readers of the"
                      " layout treat differently: fetch the head again")
    ids = ids + steps
    wrong = ids[(ids < 0) | (ids >= layout.shape.vocab)]
    if len(wrong):
        raise Refusal(f"the d2t of {layout.name} leads to token {int(wrong[0])}, outside a vocabulary of"
                      f" {layout.shape.vocab}: fetch the head again")
    if len(ids.unique()) < len(ids):
        raise Refusal(f"the d2t of {layout.name} leads to one token twice (it holds differences, draft id + d2t ="
                      " target id): fetch the head again")
    return ids
