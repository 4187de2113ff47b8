"""Checkpoints of Phi's and Granite's families, and of models that read images, with a Llama's names and numbers.

The text model of one that reads images has names of its own, and the tensors of the images are left out. Phi-3 stores
matrices joined that a Llama stores apart, and Phi-4-mini rotates a part of each head. Granite multiplies embedding,
attention, residuals and logits by factors of its config; these go into the matrices before them, so that the forward is
a Llama's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec_lib.models.llama.config import FETCH, LlamaConfig, config_of, given, is_positive, text_part
from specdec_lib.models.llama.weights import Get, check_tensors, read_config, reader, safetensors_files, wide
from specdec_lib.types import Refusal

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
JOINED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj",
          "up_proj": "gate_up_proj"}               # in Phi-3: a Llama's matrix -> where its rows lie
STARTS = {"model.language_model.": "model.", "language_model.": ""}        # of text beside images: there -> here
TEXT = ("model.embed_tokens.", "model.layers.", "model.norm.", "lm_head.")
FACTORS = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")      # Granite's


def stored_weights(folder: str | Path) -> tuple[LlamaConfig, Get]:
    """The shape of the checkpoint in a folder and what reads its tensors; Refusal where the two do not fit."""
    config = read_config(folder)
    check_tensors(config_of(config), folder, text_name if is_wrapped(config) else str)
    return as_llama(config, safetensors_files(folder), reader(folder))


def is_wrapped(config: Mapping[str, Any]) -> bool:
    """Whether this is a model of text and images."""
    return text_part(config) is not config


def text_name(name: str) -> str | None:
    """A Llama's name of a tensor of a model of text and images; None where the text model does not have it."""
    start = next((start for start in STARTS if name.startswith(start)), "")
    ours = STARTS.get(start, "") + name.removeprefix(start)
    return ours if ours.startswith(TEXT) else None


def as_llama(config: Mapping[str, Any], names: Collection[str], get: Get) -> tuple[LlamaConfig, Get]:
    """The shape of a checkpoint with tensors of these names, and what reads them under a Llama's names.

    What is stored decides whether the head is the embedding, and the config only where one is missing: transformers
    ties the two by `tie_word_embeddings` unless both are stored with different numbers, and so does this.
    """
    shape, family = config_of(config), text_part(config)["model_type"]
    if is_wrapped(config):
        there, stored = {ours: name for name in names if (ours := text_name(name))}, get
        names, get = there, lambda name: stored(there.get(name, name))
    if shape.tied and HEAD in names:
        if EMBEDDING in names:
            shape = replace(shape, tied=same_numbers(get(EMBEDDING), get(HEAD)))
        else:
            get = renamed(get)
    if family == "phi3":
        return shape, paired(shape, parted(shape, get))
    if family == "granite":
        return replace(shape, tied=False), multiplied(granite_factors(config, shape), shape.tied, get)
    return shape, get


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether these are one tensor, or two that are equal."""
    alike = one.dtype == other.dtype and one.device == other.device
    return one is other or alike and torch.equal(one, other)


def renamed(get: Get) -> Get:
    """Reads the head for the embedding."""
    return lambda name: get(HEAD if name == EMBEDDING else name)


def parted(shape: LlamaConfig, get: Get) -> Get:
    """Reads a Llama's matrices out of Phi-3's: queries, keys and values lie in one, gate and up in another."""
    queries, pairs = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    starts = {"q_proj": 0, "k_proj": queries, "v_proj": queries + pairs, "gate_proj": 0, "up_proj": shape.mlp}
    counts = {"q_proj": queries, "k_proj": pairs, "v_proj": pairs, "gate_proj": shape.mlp, "up_proj": shape.mlp}
    whole = lru_cache(1)(get)                      # its parts are asked for one after the other

    def read(name: str) -> Tensor:
        module = name.split(".")[-2]
        if module not in JOINED:
            return get(name)
        return whole(name.replace(module, JOINED[module])).narrow(0, starts[module], counts[module])

    return read


def paired(shape: LlamaConfig, get: Get) -> Get:
    """Reads queries and keys with the coordinates that turn together half a head apart, as in a Llama's heads.

    Where a head is rotated in part, its first coordinates are, and turn with those half of that part away.
    """
    turned, size = len(shape.rope.stretch), shape.head_dim
    if not turned or 2 * turned == size:
        return get
    place, still = torch.arange(size // 2), size // 2 - turned
    order = torch.cat((torch.where(place < turned, place, place + turned),
                       torch.where(place < turned, place, place + still) + turned))

    def read(name: str) -> Tensor:
        tensor = get(name)
        if name.split(".")[-2] not in ("q_proj", "k_proj"):
            return tensor
        return tensor.unflatten(0, (-1, size))[:, order.to(tensor.device)].flatten(0, 1)

    return read


def multiplied(factors: Mapping[str, float], tied: bool, get: Get) -> Get:
    """Reads matrices and biases multiplied by the factors of their modules, in single precision, unrounded."""
    def read(name: str) -> Tensor:
        factor = factors.get(name.split(".")[-2], 1.0)
        tensor = get(EMBEDDING if tied and name == HEAD else name)
        return tensor if factor == 1 else wide(tensor) * factor

    return read


def granite_factors(config: Mapping[str, Any], shape: LlamaConfig) -> dict[str, float]:
    """Module -> the factor of its weights. The queries' undoes a Llama's division by the root of their size."""
    def named(name: str) -> float:
        value = given(config, name, 1.0)
        if not is_positive(value):
            raise Refusal(f"a model's {name} is a number above 0, and its config.json says {value!r}: {FETCH}")
        return value

    embedding, attention, residual, logits = map(named, FACTORS)
    return {"embed_tokens": embedding, "q_proj": attention * shape.head_dim ** 0.5, "o_proj": residual,
            "down_proj": residual, "lm_head": 1 / logits}
