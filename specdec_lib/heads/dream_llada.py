"""Pretrained diffusion language models as drafters: Dream and LLaDA, from a folder of safetensors.

They were never trained on the target (Li et al. 2025, DiffuSpec, drafts for Qwen2.5 with Dream); they share only
its tokenizer. The head has the rows of tokens that may be drafted alone, so a mask, padding or a token that the target
does not know cannot be drafted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specdec_lib.heads.diffusion import FULL, DiffusionLM
from specdec_lib.hub.diffusion_configs import DiffusionFamily, diffusion_family
from specdec_lib.hub.load import refuse_too_large
from specdec_lib.models.llama.weights import LlamaWeights, fuse, read_config, reader, size_of
from specdec_lib.types import Refusal


@dataclass(frozen=True)
class Pretrained:
    """A loaded model; `head()` gives one decode its drafter, and all drafters share the weights."""

    name: str
    family: DiffusionFamily
    weights: LlamaWeights
    mask: int

    def head(self, window: int | None = None) -> DiffusionLM:
        """A drafter with full attention; `window` tokens at most, by default the context it was trained for."""
        return DiffusionLM(self.weights, self.family.shifted, window, FULL, self.mask)


def load_pretrained(folder: str | Path, tokens: Collection[int], dtype: torch.dtype = torch.float32, device="cpu",
                    end: Collection[int] = (), vocab: int = 0, name: str = "") -> Pretrained:
    """The model in this folder, restricted to drafting `tokens`, the ones that the target knows.

    It never drafts its mask; nor its padding, unless that is one of the target's `end` tokens (Dream pads with the end
    of a text), since a drafter has to be able to draft the end. Raises Refusal for another kind of model, for a tensor
    or setting that is missing, for a tensor of another size, for weights that do not fit into memory, and for a target
    `vocab` larger than its own.
    """
    folder = Path(folder)
    config = read_config(folder)
    family = diffusion_family(config)
    shape = family.shape(config)
    mask, pad = (config.get(key) for key in ("mask_token_id", "pad_token_id"))
    mask = family.mask if mask is None else mask
    name = name or folder.name
    if mask >= shape.vocab:
        raise Refusal(f"the mask of {name} is token {mask} and its vocabulary has {shape.vocab} tokens: its config.json"
                      " does not belong to its weights")
    if vocab > shape.vocab:
        raise Refusal(f"{name} knows {shape.vocab} tokens and the target {vocab}: take a diffusion model that was made"
                      " for this target")
    refuse_too_large(folder, dtype, device)
    never = {mask, *({pad} - set(end))}
    ids = torch.tensor(sorted(token for token in tokens if token not in never and token < shape.vocab), device=device)
    if len(ids) < 2:
        raise Refusal(f"{name} and the target have too few tokens in common to draft any")
    get = reader(folder)

    def fitting(tensor: str) -> Tensor:
        found, size = get(family.tensor(tensor)), size_of(shape, tensor)
        if tuple(found.shape) != size:
            raise Refusal(f"{family.tensor(tensor)} of {name} has the size {tuple(found.shape)} and its config.json"
                          f" says {size}: the two belong to different models")
        return found

    weights = fuse(shape, fitting, dtype, device, ids=ids)
    return Pretrained(name, family, weights, mask)
