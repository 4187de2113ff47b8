"""Weights of a Llama-family decoder: from a folder of safetensors, or random; fused and packed layer by layer.

The weight of a norm that feeds a linear layer is multiplied into it, and attention's 1 / sqrt(head size) into the
queries, so the forward does neither. Nothing is ever read through pickle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec_lib.models.llama.compiled_layers import CompiledLayers, compiled_layers
from specdec_lib.models.llama.compiled_linear import CompiledLayer, LinearCode, normed
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.dense_linear import DenseLinear, dense_code
from specdec_lib.models.llama.four_bit_linear import FourBitLinear
from specdec_lib.models.llama.packed_linear import PackedLinear
from specdec_lib.types import Refusal

LAYER = re.compile(r"model\.layers\.(\d+)\.")
READABLE = ("F32", "BF16", "F16", "F64")           # kinds of numbers in safetensors that a forward computes with
Get = Callable[[str], Tensor]                      # name in a transformers checkpoint -> tensor
Linear = PackedLinear | DenseLinear | FourBitLinear
MATRICES = ("qkv", "out", "gate_up", "down")       # of a layer, as `LayerWeights` and drafters' checkpoints name them


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer with its input norms folded into `qkv` and `gate_up`."""

    qkv: Linear                                    # query heads, then key heads, then value heads
    out: Linear
    gate_up: Linear
    down: Linear
    q_norm: Tensor | None = None                   # [head_dim], includes attention's scale
    k_norm: Tensor | None = None
    turned: bool = True                            # by rotary angles
    fused: CompiledLayer | None = None             # the four matrices in fewer calls


def linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The layer of this weight [out, in] on the fastest kernels that its device has."""
    if weight.device.type == "cpu" and dense_code(weight.dtype) is not None:
        return DenseLinear(weight, bias)
    return PackedLinear(weight, bias)


def code_of(layer: Any) -> LinearCode | None:
    """The compiled code that this layer runs in; None where it runs in none."""
    return getattr(layer, "code", None)


def fused_layer(qkv: Linear, out: Linear, gate_up: Linear, down: Linear, eps: float) -> CompiledLayer | None:
    """These four matrices in fewer calls; None where they are not all in compiled code, and where that cannot gate."""
    compiled = [part for part in (qkv, out, gate_up, down) if not isinstance(part, PackedLinear)]
    gates = len(compiled) == 4 and compiled[2].out % (2 * compiled[2].code.tile) == 0
    return CompiledLayer(*compiled, eps=eps) if gates else None


@dataclass(frozen=True)
class LlamaWeights:
    shape: LlamaConfig
    embedding: Tensor                              # [V, hidden]
    layers: tuple[LayerWeights, ...]
    norm: Tensor                                   # [hidden], before the head
    head: Linear                                   # [V or restricted rows, hidden]
    ids: Tensor | None = None                      # tokens of the head's rows; None = all, in order
    four_bit: str | None = None                    # whose 4-bit codes the matrices are in; None = they are in none
    free: list[Any] = field(init=False, default_factory=list, repr=False, compare=False)     # see `cache_pool.py`

    @cached_property
    def together(self) -> CompiledLayers | None:
        """All layers in one call; None where that is not compiled for them."""
        plain = all(layer.q_norm is None and layer.turned for layer in self.layers)
        return compiled_layers([layer.fused for layer in self.layers]) if plain else None

    def normed(self, x: Tensor) -> Tensor:
        """The hidden states as the head reads them."""
        return normed(code_of(self.head), x, self.norm, self.shape.eps)

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.device


def check_tensors(shape: LlamaConfig, folder: str | Path, ours: Callable[[str], str | None] = str) -> None:
    """Refuses weights that are of another model than the config: other sizes, more layers, or no real numbers.

    Reads headers alone. `ours` gives our name of a stored tensor, None for one that is not read.
    """
    for name, (size, kind) in tensor_headers(folder).items():
        here = ours(name)
        if here is None:
            continue
        layer = LAYER.match(here)
        if layer and int(layer[1]) >= shape.layers:
            raise Refusal(f"{folder} holds weights of layer {layer[1]}, counted from 0, and its config.json has"
                          f" {shape.layers} layers: the config is another model's, fetch the model again")
        wanted = expected_size(shape, here)
        if wanted is not None and kind not in READABLE:
            raise Refusal(f"in {folder} the tensor {name} is stored as {kind}, and weights are read from"
                          f" {', '.join(READABLE)}: fetch the model as it was published, or convert it")
        if wanted is not None and size != wanted:
            raise Refusal(f"in {folder} the tensor {name} is {side_by_side(size)} and by its config.json"
                          f" {side_by_side(wanted)}: the config is another model's, fetch the model again")


def expected_size(shape: LlamaConfig, name: str) -> tuple[int, ...] | None:
    """The size of a tensor by the config; None for one that the forward does not read."""
    if not name.endswith((".weight", ".bias")):    # `weight_scale`
        return None
    try:
        return size_of(shape, name)
    except (KeyError, ValueError):
        return None


def side_by_side(size: tuple[int, ...]) -> str:
    return " x ".join(map(str, size))


def fuse(shape: LlamaConfig, get: Get, dtype: torch.dtype, device, layers: int | None = None,
         ids: Tensor | None = None) -> LlamaWeights:
    """Weights in the layout of the forward: the first `layers` layers, the rows `ids` of the head."""
    count = checked_count(shape, layers)

    def put(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype)

    embedding = put(get("model.embed_tokens.weight"))
    decoder = tuple(fuse_layer(shape, get, f"model.layers.{i}.", put, i not in shape.unturned) for i in range(count))
    head = embedding if shape.tied else put(get("lm_head.weight"))
    ids = None if ids is None else ids.to(head.device)           # a captured step cannot copy them there
    return LlamaWeights(shape, embedding, decoder, put(get("model.norm.weight")),
                        linear(head if ids is None else head[ids]), ids)


def checked_count(shape: LlamaConfig, layers: int | None) -> int:
    """How many layers are wanted, all for None; ValueError for more than there are."""
    count = shape.layers if layers is None else layers
    if not 0 < count <= shape.layers:
        raise ValueError(f"the model has {shape.layers} layers, {count} were requested")
    return count


def fuse_layer(shape: LlamaConfig, get: Get, prefix: str, put: Callable[[Tensor], Tensor],
               turned: bool = True) -> LayerWeights:
    """One layer: query, key and value become one matrix, gate and up another."""
    def join(names: tuple[str, ...], biased: bool, norm: str | None = None, scale: float = 1.0) -> Linear:
        """Joins matrices; the first is multiplied by `scale`, all by the norm before them, and then rounded."""
        weights = [get(f"{prefix}{name}.weight") for name in names]
        if scale != 1:
            weights[0] = wide(weights[0]) * scale
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        if norm is not None:
            weight = wide(weight).mul_(get(prefix + norm))
        biases = [wide(get(f"{prefix}{name}.bias")) for name in names] if biased else []
        return linear(put(weight), put(torch.cat([biases[0] * scale, *biases[1:]])) if biased else None)

    normed, scale = shape.head_norms, shape.head_dim ** -0.5
    q_norm = k_norm = None
    if normed:
        q_norm, k_norm = (put(get(f"{prefix}self_attn.{name}_norm.weight")) for name in "qk")
        q_norm = q_norm * scale
    qkv = join(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), shape.qkv_bias,
               "input_layernorm.weight", 1.0 if normed else scale)
    out = join(("self_attn.o_proj",), shape.out_bias)
    gate_up = join(("mlp.gate_proj", "mlp.up_proj"), shape.mlp_bias, "post_attention_layernorm.weight")
    down = join(("mlp.down_proj",), shape.mlp_bias)
    return LayerWeights(qkv, out, gate_up, down, q_norm, k_norm, turned,
                        fused_layer(qkv, out, gate_up, down, shape.eps))


def wide(tensor: Tensor) -> Tensor:
    """The tensor in at least single precision, so that products are rounded once."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def random_weights(shape: LlamaConfig, seed: int = 0, dtype: torch.dtype = torch.float32,
                   device: torch.device | str = "cpu", scale: float | None = None) -> LlamaWeights:
    """Random weights made on the device, for tests and for timing; `scale` is their deviation, 1 / sqrt(in) if None."""
    dice = torch.Generator(device).manual_seed(seed)

    def get(name: str) -> Tensor:
        module, kind = name.split(".")[-2:]
        size = size_of(shape, name)
        if "norm" in module or kind == "bias":
            return torch.full(size, float("norm" in module), device=device)
        return torch.randn(size, generator=dice, device=device) * (size[1] ** -0.5 if scale is None else scale)

    return fuse(shape, get, dtype, device)


def size_of(shape: LlamaConfig, name: str) -> tuple[int, ...]:
    """The size of the tensor of this name, such as `model.layers.0.mlp.down_proj.weight`."""
    module, kind = name.split(".")[-2:]
    if "norm" in module:
        return (shape.head_dim if module in ("q_norm", "k_norm") else shape.hidden,)
    heads, pairs = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    out, into = {"q_proj": (heads, shape.hidden), "k_proj": (pairs, shape.hidden), "v_proj": (pairs, shape.hidden),
                 "o_proj": (shape.hidden, heads), "gate_proj": (shape.mlp, shape.hidden),
                 "up_proj": (shape.mlp, shape.hidden), "down_proj": (shape.hidden, shape.mlp),
                 "qkv_proj": (heads + 2 * pairs, shape.hidden), "gate_up_proj": (2 * shape.mlp, shape.hidden),
                 "embed_tokens": (shape.vocab, shape.hidden), "lm_head": (shape.vocab, shape.hidden)}[module]
    return (out,) if kind == "bias" else (out, into)


def read_config(folder: str | Path) -> dict:
    """The `config.json` of a checkpoint folder; Refusal if there is none or it cannot be read."""
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refusal(f"{folder} is no model folder: it has no config.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(f"{path} cannot be read ({error}): fetch the model again") from None
    if not isinstance(config, dict):
        raise Refusal(f"{path} does not hold a model configuration: fetch the model again")
    return config


def model_files(folder: Path) -> list[Path]:
    """The .safetensors files of the model; some folders hold the same weights under other names beside them."""
    files, whole = sorted(folder.glob("*.safetensors")), folder / "model.safetensors"
    theirs = [whole] if whole in files else shards(folder)
    return theirs or [file for file in files if not file.name.startswith("consolidated")] or files


def shards(folder: Path) -> list[Path]:
    """Files that the index of a split model names; none where the weights are one file."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    try:
        return [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refusal(f"{index} is not readable: copy or download it again") from error


def safetensors_files(folder: str | Path) -> dict[str, Path]:
    """The file of each tensor of a checkpoint folder; Refusal if a file is missing or corrupt."""
    from safetensors import SafetensorError, safe_open

    folder, out = Path(folder), {}
    files = model_files(folder)
    if not files:
        raise Refusal(f"{folder} holds no .safetensors file, the only format that weights are read from")
    for path in files:
        try:
            with safe_open(path, "pt") as file:
                out |= dict.fromkeys(file.keys(), path)
        except (SafetensorError, OSError) as error:
            raise Refusal(f"{path} is corrupt ({error}): delete it and fetch the model again") from None
    return out


def tensor_sizes(folder: str | Path) -> dict[str, tuple[int, ...]]:
    """The size of every tensor of a checkpoint folder, from the headers of its files."""
    return {name: size for name, (size, _) in tensor_headers(folder).items()}


def tensor_headers(folder: str | Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """The size of every tensor of a checkpoint folder, and how its numbers are stored, such as BF16."""
    from safetensors import safe_open

    where, out = safetensors_files(folder), {}
    for path in sorted(set(where.values())):
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}                        # noqa: SIM118
            out |= {name: (tuple(one.get_shape()), one.get_dtype()) for name, one in slices.items()}
    return out


def reader(folder: str | Path) -> Get:
    """A function that reads one tensor at a time, so a model is never in memory twice; Refusal for a missing one."""
    from safetensors import safe_open

    where = safetensors_files(folder)
    opened = cache(lambda path: safe_open(path, "pt"))

    def get(name: str) -> Tensor:
        if name not in where:
            raise Refusal(f"{folder} lacks the tensor {name}: the download is incomplete or the config is another"
                          " model's")
        return opened(where[name]).get_tensor(name)

    return get
