"""Whether a checkpoint's head is its embedding: what is stored decides, and the config only where one is missing.

transformers ties the two by `tie_word_embeddings` unless both are stored with different numbers, and so does this.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.weights import Get, check_tensors, reader, safetensors_files

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def stored_weights(shape: LlamaConfig, folder: str | Path) -> tuple[LlamaConfig, Get]:
    """The shape, untied where the folder holds a head of its own, and what reads the tensors; Refusal as by both."""
    check_tensors(shape, folder)
    get, names = reader(folder), safetensors_files(folder)
    if not shape.tied or HEAD not in names:
        return shape, get
    if EMBEDDING not in names:
        return shape, lambda name: get(HEAD if name == EMBEDDING else name)
    return replace(shape, tied=same_numbers(get(EMBEDDING), get(HEAD))), get


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether these are one tensor, or two that are equal."""
    alike = one.dtype == other.dtype and one.device == other.device
    return one is other or alike and torch.equal(one, other)
