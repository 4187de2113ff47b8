"""Random masking, as masked diffusion language models are trained: which tokens are hidden, and their weights.

A rate t is drawn for each block, each of its tokens is hidden with that probability, and a hidden token's cross-entropy
has the weight 1 / t over the tokens of the block, so that the expected weight of a block is one. Sources: Sahoo et al.
2024 (MDLM); Nie et al. 2025 (LLaDA).
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 0.05                                       # masking rate: below it almost no token of a block is hidden
MOST = 10.0                                        # weight of a token: larger weights make the gradient noisy


def mask_rates(shape: tuple[int, ...], dice: torch.Generator, least: float = LEAST) -> Tensor:
    """Rates t, uniform between `least` and 1."""
    return least + (1 - least) * torch.rand(shape, generator=dice)


def hide_tokens(t: Tensor, slots: int, dice: torch.Generator) -> Tensor:
    """Which tokens are hidden [..., slots], each with its block's probability t [...]."""
    return torch.rand(*t.shape, slots, generator=dice) < t[..., None]


def hidden_weights(masked: Tensor, t: Tensor, counted: Tensor, most: float = MOST) -> Tensor:
    """Weights [..., slots] of the cross-entropies: min(1 / t, most) over the block's counted tokens, where hidden.

    `counted [..., slots]` are the tokens that can be learned; a block without any has weight zero.
    """
    size = counted.sum(-1, keepdim=True).clamp(min=1)
    return (masked & counted) * (1 / t).clamp(max=most)[..., None] / size
