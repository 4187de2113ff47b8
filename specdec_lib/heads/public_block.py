"""A published block drafter (DFlash): what its folder holds and what its rows compute; `dflash_head.py` drafts with it.

Source: DFlash (arXiv 2602.06036), read from its code (`dflash/model.py` of github.com/z-lab/dflash). The feature of a
token is w RMS(fc [taps]), with RMS(x) = x / sqrt(mean x^2 + eps); every layer makes a key and a value of it by its own
matrices, without the norm that its rows pass. A block is the last committed token and masks behind it: the target's
embeddings of that token and of one mask token. Its rows pass layers of Qwen3's kind and see every committed token
before them and each other, in both directions. The row of a mask predicts the token in its place, by the target's
output matrix. What is easily misread:

- Taps. `target_layer_ids` names layers by their outputs, from 0: one more is how `Transformer.taps` counts. The output
  of the last layer is refused: transformers norms it and servers do not.
- Slots. The first row predicts nothing, so a block of 16 drafts 15 tokens.
- Its successors (DFlash 2, Domino, DSpark) have the same first tensors and others besides: they are refused.

Tested on random weights against a plain forward; no published drafter has been run yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.base import TargetWeights, drafter_weights, output_matrix, real_tensor, shared_weights
from specdec_lib.heads.eagle_layouts import Sizes, check_sizes, check_taps, check_width
from specdec_lib.models.llama.config import LlamaConfig, config_of
from specdec_lib.models.llama.forward import Columns, LayerView, decoder_layer, scaled
from specdec_lib.models.llama.weights import (
    Get,
    LayerWeights,
    Linear,
    code_of,
    fuse_layer,
    linear,
    read_config,
    reader,
    size_of,
    tensor_sizes,
)
from specdec_lib.types import LM, Refusal

KIND = "DFlashDraftModel"                          # in `architectures`
OURS = ("target_layer_ids", "mask_token_id", "block_size", "num_target_layers")       # what `dflash_config` may hold
USUAL = {"is_causal": False, "causal": False, "input_embedding_scale": 1, "output_multiplier": 1,
         "final_logit_softcapping": 0, "attention_mode": "gqa"}  # other values of these make it another network
LAYER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm",
         "self_attn.k_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm",
         "post_attention_layernorm")


@dataclass(frozen=True)
class BlockLayout:
    """One published drafter: enough to build its forward."""

    name: str                                      # as a person calls it
    shape: LlamaConfig                             # of its layers
    block: int                                     # tokens that it drafts
    mask: int                                      # the token that stands for an unknown one
    taps: tuple[int, ...]                          # of the target, as `Transformer.taps` counts them


def block_layout_of(name: str, config: Mapping[str, Any], sizes: Sizes, target: LlamaConfig) -> BlockLayout:
    """The drafter that this `config.json` and these tensors describe, for a target of this shape.

    Refusal where it is none of this kind, does not fit the target, or where a tensor is missing, unknown or of another
    size.
    """
    own = config.get("dflash_config")
    kinds = config.get("architectures")
    if kinds != [KIND] or not isinstance(own, Mapping):
        said = f"a {kinds[0]}" if isinstance(kinds, list) and kinds else "no model that says what it is"
        raise Refusal(f"{name} is {said}, and a block drafter that is known here is a {KIND} with a dflash_config")
    for word, usual in USUAL.items():
        if (value := own.get(word, config.get(word))) is not None and value != usual:
            raise Refusal(f"{name} has {word} {value!r}, and only drafters with {usual!r} are supported")
    if unknown := [word for word in own if word not in OURS and word not in USUAL]:
        raise Refusal(f"the dflash_config of {name} has {unknown[0]}, which is not known here: it is another network")
    try:
        shape = config_of({**config, "model_type": config.get("model_type") or "qwen3"})
    except Refusal as why:
        raise Refusal(f"the drafter {name} cannot be run: {why}") from None
    check_width(name, shape, shape.hidden, target)
    rows, mask, ids = own.get("block_size", config.get("block_size")), own.get("mask_token_id"), taps_in(own)
    if type(rows) is not int or not 2 <= rows <= shape.context:
        raise Refusal(f"the config.json of {name} gives a block_size of {rows!r}, and it is a whole number of 2 to"
                      f" {shape.context}: fetch the drafter again")
    if type(mask) is not int or not 0 <= mask < shape.vocab:
        raise Refusal(f"the config.json of {name} gives a mask_token_id of {mask!r}, and it is one of {shape.vocab}"
                      " tokens: fetch the drafter again")
    if ids is None:
        raise Refusal(f"the config.json of {name} gives no target_layer_ids, a list of whole numbers: fetch the drafter"
                      " again")
    taps = tuple(id + 1 for id in ids)
    check_taps(name, taps, target.layers)
    layout = BlockLayout(name, replace(shape, head_norms=True), rows - 1, mask, taps)
    check_sizes(name, f"a {KIND}", {there: (there, size) for there, size in sizes.items()}, sizes_of(layout), {})
    return layout


def taps_in(own: Mapping[str, Any]) -> list[int] | None:
    """The `target_layer_ids`; None for anything but a list of whole numbers."""
    ids = own.get("target_layer_ids")
    return ids if isinstance(ids, list) and ids and all(type(id) is int for id in ids) else None


def sizes_of(layout: BlockLayout) -> Sizes:
    """The size of every tensor of the drafter."""
    shape, h = layout.shape, layout.shape.hidden
    biased = {"q": shape.qkv_bias, "k": shape.qkv_bias, "v": shape.qkv_bias, "o": shape.out_bias}
    parts = [*(f"{module}.weight" for module in LAYER), *(f"self_attn.{part}_proj.bias" for part in biased
                                                          if biased[part])]
    names = [f"layers.{i}.{part}" for i in range(shape.layers) for part in parts]
    return {"fc.weight": (h, len(layout.taps) * h), "hidden_norm.weight": (h,), "norm.weight": (h,),
            **{name: size_of(shape, name) for name in names}}


@dataclass(frozen=True)
class DFlashNetwork:
    """The drafter's tensors, packed for one target."""

    shape: LlamaConfig
    block: int                                     # tokens that it drafts
    fc: Linear                                     # concatenated taps -> hidden
    inject: Linear                                 # feature -> keys and values of every layer, layer after layer
    layers: tuple[LayerWeights, ...]
    norm: Tensor                                   # [hidden], before the head
    head: Callable[[Tensor], Tensor]               # the target's output matrix
    embedding: Tensor                              # [V, hidden] the target's
    mask: Tensor                                   # [1, hidden] the embedding of the mask token
    free: list[Any] = field(init=False, default_factory=list, repr=False, compare=False)     # see `captured_dflash.py`

    def feature(self, taps: Tensor) -> Tensor:
        """The features [rows, hidden] of tokens, but for a weight that is in `inject`, from [rows, taps, hidden]."""
        return scaled(self.fc(taps.reshape(len(taps), -1)), self.shape.eps, code_of(self.inject))

    def injected(self, feature: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Keys, turned by the angles [rows, head_dim], and values [layers, kv_heads, rows, head_dim] of these rows."""
        shape, count = self.shape, len(feature)
        kv = self.inject(feature).view(count, len(self.layers), 2, shape.kv_heads, shape.head_dim)
        keys, values = kv.permute(2, 1, 3, 0, 4)
        keys = torch.stack([F.rms_norm(each, (shape.head_dim,), layer.k_norm, shape.eps)
                            for each, layer in zip(keys, self.layers, strict=True)])
        return keys * cos + keys.roll(shape.head_dim // 2, -1) * sin, values

    def filled(self, anchor: Tensor, masks: int, kv: Iterable[Columns], view: LayerView) -> Tensor:
        """Normed hidden states [1 + masks, hidden] of this token, of which the embedding is given, and of masks."""
        x = torch.cat((anchor, self.mask.expand(masks, -1)))
        for layer, own in zip(self.layers, kv, strict=True):
            x = decoder_layer(x, layer, self.shape, own, view)
        return F.rms_norm(x, (self.shape.hidden,), self.norm, self.shape.eps)


@dataclass(frozen=True, eq=False)
class PublicBlock:
    """A published drafter that fits one target; `network(weights)` packs its tensors, and `meta` names its taps."""

    layout: BlockLayout
    read: Get = field(repr=False)                  # a tensor by its name in the folder

    @property
    def meta(self) -> Mapping[str, Any]:
        return {"taps": list(self.layout.taps)}

    def network(self, weights: TargetWeights) -> DFlashNetwork:
        """The tensors on the device of these weights, the target's, in the dtype of its drafters."""
        weights, shape = drafter_weights(weights), self.layout.shape
        dtype = torch.promote_types(weights.dtype, torch.float32)

        def get(name: str) -> Tensor:
            return real_tensor(self.layout.name, name, self.read, dtype)

        def put(tensor: Tensor) -> Tensor:
            return tensor.to(weights.device, weights.dtype)

        starts = [f"layers.{i}." for i in range(shape.layers)]
        names = [f"{start}self_attn.{part}_proj" for start in starts for part in "kv"]
        joined = torch.cat([get(f"{name}.weight") for name in names]) * get("hidden_norm.weight")
        biases = put(torch.cat([get(f"{name}.bias") for name in names])) if shape.qkv_bias else None
        return DFlashNetwork(shape, self.layout.block, linear(put(get("fc.weight")), None),
                             linear(put(joined), biases), tuple(fuse_layer(shape, get, start, put) for start in starts),
                             put(get("norm.weight")), output_matrix(weights), weights.embedding,
                             weights.embedding[self.layout.mask][None])


def load_public_block(folder: str | Path, target: LM, name: str = "") -> PublicBlock:
    """The published drafter in this folder, checked for this target; it is read through safetensors alone.

    Refusal for what is no drafter of this kind, lacks a tensor, or was trained for another model, and for a target that
    keeps no hidden states.
    """
    folder, weights = Path(folder), shared_weights(target)
    layout = block_layout_of(name or folder.name, read_config(folder), tensor_sizes(folder), weights.shape)
    return PublicBlock(layout, reader(folder))
