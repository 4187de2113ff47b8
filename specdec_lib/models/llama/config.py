"""The shape of a Llama-family decoder, read from a transformers config, and its rotary angles.

Families: Llama 2 and 3, Vicuna, SmolLM (`llama`), SmolLM3, Mistral without a sliding window, Qwen2 and 2.5, Qwen3;
those that `families.py` brings into a Llama's form, Phi-4 (`phi3`) and Granite; and the text model of one that reads
images, too.
Knows nothing about weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.types import Refusal

NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
FETCH = "fetch the model again"                    # what helps where a config cannot be meant
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "granite", "smollm3")
WRAPPED = {"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3", "mistral3": None}     # None: as it says
ORIGINAL = "original_max_position_embeddings"      # the context before a stretch, in Phi-3 outside the rotary part
WINDOW = 4096                                      # of layers that slide where the config is silent, as in transformers


class UnsupportedConfig(Refusal):
    """The config describes a model of another family, which transformers runs instead."""


def is_positive(value: object) -> bool:
    """Whether this is a number above 0 that a model can compute with: whole numbers have any size in a file."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e30


@dataclass(frozen=True)
class Rope:
    """How positions become angles; `kind` is default, linear, llama3 (Llama 3.1's), yarn or longrope.

    Sources: YaRN (arXiv:2309.00071), LongRoPE (arXiv:2402.13753) within the context before the stretch.
    """

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0                               # wavelengths longer than original / low are stretched in full
    high: float = 4.0                              # wavelengths shorter than original / high are left alone
    original: int = 8192                           # context before the stretch
    scale: float = 1.0                             # of cosines and sines, YaRN's root of 1 / temperature
    stretch: tuple[float, ...] = ()                # LongRoPE's factor of each pair that is rotated; others are not

    def __post_init__(self):
        if not all(map(is_positive, (self.theta, self.factor, self.low, self.high, self.original, self.scale,
                                     *self.stretch))):
            raise Refusal(f"rotary angles come from numbers above 0, and the config.json says {self}: {FETCH}")
        if self.low == self.high:
            raise Refusal(f"rotary scaling stretches between two wavelengths, and both are {self.low}: {FETCH}")
        if self.kind == "yarn" and self.theta == 1:
            raise Refusal(f"with YaRN the rotary angles have no base of 1, as the config.json says: {FETCH}")


@dataclass(frozen=True)
class LlamaConfig:
    """Everything that the forward needs besides the weights."""

    layers: int
    hidden: int
    heads: int                                     # query heads
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    context: int
    eps: float = 1e-5
    rope: Rope = Rope()
    tied: bool = False                             # the head is the embedding
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_norms: bool = False                       # Qwen3 normalises every query and key head
    unturned: tuple[int, ...] = ()                 # layers that do not rotate queries and keys, SmolLM3's

    def __post_init__(self):
        for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "mlp", "vocab", "context"):
            size = getattr(self, name)
            if type(size) is not int or not 0 < size < 2 ** 31:
                raise Refusal(f"a model's {name} is a whole number above 0, and its config.json says {size!r}:"
                              f" {FETCH}")
        if self.heads % self.kv_heads:
            raise Refusal(f"{self.heads} query heads cannot share {self.kv_heads} key-value heads evenly: {FETCH}")
        if self.head_dim % 2:
            raise Refusal(f"rotary angles need an even head size, got {self.head_dim}: {FETCH}")
        if not is_positive(self.eps):
            raise Refusal(f"the norms' epsilon is a number above 0, and the config.json says {self.eps!r}: {FETCH}")

    @property
    def group(self) -> int:
        """Query heads per key-value head."""
        return self.heads // self.kv_heads


def config_of(config: Mapping[str, Any]) -> LlamaConfig:
    """The shape that a `config.json` describes; UnsupportedConfig if not ours.

    Refusal for values that no model can have.
    """
    try:
        return shape_in(config)
    except (TypeError, AttributeError, KeyError) as error:       # a list for a number, a number for a mapping
        raise Refusal(f"the model's config.json holds a value of a wrong kind ({error}): {FETCH}") from None


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the text model alone, where the model reads images as well; else the same config.

    Earlier files hold its values beside those of the images.
    """
    family, inside = config.get("model_type"), config.get("text_config")
    if not isinstance(family, str) or family not in WRAPPED:
        return config
    text = inside if isinstance(inside, Mapping) else config
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    return {**text, "model_type": WRAPPED[family] or text.get("model_type"), "tie_word_embeddings": tied}


def shape_in(config: Mapping[str, Any]) -> LlamaConfig:
    """What `config_of` returns; whatever Python raises for values of a wrong kind."""
    config = text_part(config)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedConfig(f"architecture {family!r} is not of the Llama family")
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        raise UnsupportedConfig(f"activation {config['hidden_act']!r} is not the family's SiLU")
    if config.get("quantization_config"):
        raise UnsupportedConfig("the weights are stored quantised")
    missing = [name for name in NEEDED if name not in config]
    if missing:
        raise Refusal(f"the model's config.json lacks {', '.join(missing)}: fetch the model again")
    context = given(config, "max_position_embeddings", 2048)
    if type(context) is not int or context < 1:
        raise Refusal(f"a model's context is a whole number above 0, and its config.json says {context!r}: {FETCH}")
    window = config.get("sliding_window", None if family in ("phi3", "smollm3") else WINDOW)
    if window is not None and window < context and slides(config):
        raise UnsupportedConfig(f"a layer attends to a sliding window of {window} tokens inside a context of {context}")
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    shared = type(hidden) is type(heads) is int and heads > 0 and hidden % heads == 0
    if config.get("head_dim") is None and not shared:
        raise Refusal(f"{heads!r} heads cannot share a hidden size of {hidden!r} evenly: {FETCH}")
    biased, head_dim = bool(config.get("attention_bias", False)), given(config, "head_dim", hidden // heads if shared
                                                                        else 0)
    rope = rope_of(config, context, head_dim)
    return LlamaConfig(layers=config["num_hidden_layers"], hidden=hidden, heads=heads,
                       kv_heads=given(config, "num_key_value_heads", heads), head_dim=head_dim,
                       mlp=config["intermediate_size"], vocab=config["vocab_size"],
                       context=min(context, rope.original) if rope.kind == "longrope" else context,
                       eps=config.get("rms_norm_eps", 1e-6), rope=rope,
                       tied=bool(config.get("tie_word_embeddings", family == "smollm3")),
                       qkv_bias=biased or family == "qwen2", out_bias=biased and family != "qwen2",
                       mlp_bias=bool(config.get("mlp_bias", False)), head_norms=family == "qwen3",
                       unturned=unturned_layers(config) if family == "smollm3" else ())


def given(config: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """A value of a config, where null is as good as nothing."""
    return otherwise if config.get(name) is None else config[name]


def slides(config: Mapping[str, Any]) -> bool:
    """Whether some layer attends to a window, if there is one."""
    kinds = config.get("layer_types")
    if config["model_type"] in ("mistral", "phi3"):
        return config.get("use_sliding_window", True)
    if kinds:                                      # of each layer; else the first `max_window_layers` attend in full
        return "sliding_attention" in kinds
    if config["model_type"] == "smollm3":
        return config.get("use_sliding_window", False)
    full = given(config, "max_window_layers", 28)
    return config.get("use_sliding_window", False) and config["num_hidden_layers"] > full


def unturned_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The layers of a SmolLM3 that attend without positions (NoPE): those with a 0 in its list, else every fourth."""
    layers, turned = config["num_hidden_layers"], config.get("no_rope_layers")
    if turned is None:
        every = given(config, "no_rope_layer_interval", 4)
        if type(every) is not int or every < 1:
            raise Refusal(f"the interval of layers without positions is a whole number above 0, and the config.json"
                          f" says {every!r}: {FETCH}")
        return tuple(range(every - 1, min(layers, 2 ** 16), every))          # a file may say any number
    if len(turned) < layers:
        raise Refusal(f"of {layers} layers the config.json says of {len(turned)} whether they rotate: {FETCH}")
    return tuple(layer for layer in range(layers) if not turned[layer])


def rope_of(config: Mapping[str, Any], context: int, head_dim: int) -> Rope:
    """The rotary part of a config, in the spelling of transformers 4 (`rope_scaling`) or 5 (`rope_parameters`)."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = scaling.get("rope_theta") or config.get("rope_theta") or 10000.0
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "mrope":                            # three positions, which are one where there is only text
        kind = "default"
    if kind not in ("default", "linear", "llama3", "yarn", "longrope"):
        raise UnsupportedConfig(f"rotary scaling {kind!r} is not one of default, linear, llama3, yarn, longrope")
    share = scaling.get("partial_rotary_factor", given(config, "partial_rotary_factor", 1.0))
    original = next((one[ORIGINAL] for one in (config, scaling) if one.get(ORIGINAL)), context)
    if kind == "longrope" and config["model_type"] == "phi3":
        return longrope_of(scaling, theta, original, context, int(head_dim * share))
    if share != 1.0:
        raise UnsupportedConfig(f"of each head a share of {share} alone is rotated")
    if kind == "longrope":
        raise UnsupportedConfig("its LongRoPE is not Phi's")
    if kind == "llama3":
        return Rope(theta, kind, scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"], original)
    if kind == "yarn":
        return yarn_of(scaling, theta, original, context)
    return Rope(theta, kind, scaling.get("factor") or 1.0)


def longrope_of(scaling: Mapping[str, Any], theta: float, original: int, context: int, rotated: int) -> Rope:
    """LongRoPE's angles from the rotary part of a config; `rotated` coordinates of each head turn.

    Beyond the context before the stretch all angles change, so the model ends there.
    """
    stretch = scaling.get("short_factor")
    if not isinstance(stretch, list) or 2 * len(stretch) != rotated:
        raise Refusal(f"LongRoPE has a factor for each of {rotated} / 2 pairs of coordinates, and the config.json gives"
                      f" {stretch!r:.40}: {FETCH}")
    factor, scale = scaling.get("factor") or context / original, scaling.get("attention_factor")
    if scale is None:
        scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return Rope(theta, "longrope", original=original, scale=scale, stretch=tuple(stretch))


def yarn_of(scaling: Mapping[str, Any], theta: float, original: int, context: int) -> Rope:
    """YaRN's angles from the rotary part of a config, filled in as transformers does."""
    if not scaling.get("truncate", True):
        raise UnsupportedConfig("the ends of its YaRN ramp are not whole pairs of coordinates")
    factor = scaling.get("factor") or context / original
    scale = scaling.get("attention_factor")
    if scale is None:
        one, all_dims = scaling.get("mscale"), scaling.get("mscale_all_dim")
        scale = (yarn_scale(factor, one) / yarn_scale(factor, all_dims) if one and all_dims else yarn_scale(factor))
    return Rope(theta, "yarn", factor, scaling.get("beta_slow") or 1, scaling.get("beta_fast") or 32, original, scale)


def yarn_scale(factor: float, slope: float = 1.0) -> float:
    """The scale of cosines and sines for a context stretched by this factor (arXiv:2309.00071: as fitted to Llama)."""
    return 1.0 if factor <= 1 else 0.1 * slope * math.log(factor) + 1.0


def frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Angle per position of each pair of coordinates, float32 [head_dim / 2]; 0 of one that is not rotated."""
    if rope.kind == "longrope":
        rotated = 2 * len(rope.stretch)
        powers = rope.theta ** (torch.arange(0, rotated, 2).float() / rotated)
        return F.pad(1.0 / (torch.tensor(rope.stretch) * powers), (0, (head_dim - rotated) // 2))
    plain = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    if rope.kind == "default":
        return plain
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "yarn":
        smooth = 1 - yarn_ramp(rope, head_dim)
        return plain / rope.factor * (1 - smooth) + plain * smooth
    turns = rope.original * plain / (2 * math.pi)          # full turns within the original context
    smooth = ((turns - rope.low) / (rope.high - rope.low)).clamp(0, 1)
    return plain * (smooth + (1 - smooth) / rope.factor)


def yarn_ramp(rope: Rope, head_dim: int) -> Tensor:
    """How much of the stretch each pair of coordinates gets, 0 to 1: linear in the pair's number."""
    first, last = (head_dim * math.log(rope.original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))
                   for turns in (rope.high, rope.low))
    first, last = max(math.floor(first), 0), min(math.ceil(last), head_dim - 1)
    return ((torch.arange(head_dim // 2).float() - first) / (last - first or 1)).clamp(0, 1)


def rope_table(shape: LlamaConfig, length: int, dtype: torch.dtype, device) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines [length, head_dim]: x * cos + roll(x, head_dim / 2) * sin rotates x.

    The angles are float32, as transformers computes them; the first half of the sines carries the minus sign of
    the rotation, so the forward negates nothing.
    """
    angles = torch.arange(length).float()[:, None] * frequencies(shape.rope, shape.head_dim)
    cos, sin = angles.cos() * shape.rope.scale, angles.sin() * shape.rope.scale
    if shape.rope.stretch:
        cos[:, len(shape.rope.stretch):] = 1       # these keep their size, too
    return torch.cat((cos, cos), -1).to(device, dtype), torch.cat((-sin, sin), -1).to(device, dtype)
