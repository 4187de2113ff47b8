"""An autoregressive transformer over the patches of an image, conditioned on its class.

Slot 0 reads the class alone and predicts patch 0; slot s reads patch s - 1 and predicts patch s. The cache holds one
row of keys and values for every slot, so a rejected patch needs no rollback: its slot is written again before it is
read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.continuous.digits import CLASSES, DIM, PATCHES

DROPPED = 0.15                                     # of what a block adds, in training


class Size(NamedTuple):
    """Width, layers and attention heads of a transformer; width and layers of the head on it."""

    width: int
    layers: int
    heads: int
    head_width: int = 0
    head_layers: int = 0


class PatchCache(NamedTuple):
    """Keys and values [layers, images, heads, slots + 1, d]; the last slot takes what is padding."""

    keys: Tensor
    values: Tensor


class PatchBlock(nn.Module):
    """Pre-norm attention and a GELU MLP of four times the width."""

    def __init__(self, size: Size):
        super().__init__()
        self.heads = size.heads
        self.qkv = nn.Linear(size.width, 3 * size.width, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def forward(self, hidden: Tensor, mask: Tensor, cached: tuple | None) -> Tensor:
        """`hidden` [n, slots, width]; `cached` = (keys, values of this layer, rows [n, 1], slots [n, slots])."""
        n, count, width = hidden.shape
        q, k, v = self.qkv(F.layer_norm(hidden, (width,))).view(n, count, 3, self.heads, -1).unbind(2)
        if cached is not None:
            keys, values, rows, slots = cached
            keys[rows, :, slots], values[rows, :, slots] = k, v
            k, v = keys[rows[:, 0]], values[rows[:, 0]]
        else:
            k, v = k.transpose(1, 2), v.transpose(1, 2)
        seen = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask)
        out = self.out(seen.transpose(1, 2).reshape(n, count, width))
        hidden = hidden + F.dropout(out, DROPPED, self.training)
        out = self.down(F.gelu(self.up(F.layer_norm(hidden, (width,)))))
        return hidden + F.dropout(out, DROPPED, self.training)


class PatchTransformer(nn.Module):
    """Patches before a slot -> its hidden state."""

    def __init__(self, size: Size):
        super().__init__()
        self.size = size
        self.embed = nn.Linear(DIM, size.width)
        self.position = nn.Parameter(0.1 * torch.randn(PATCHES, size.width))
        self.label = nn.Parameter(0.5 * torch.randn(CLASSES, size.width))
        self.blocks = nn.ModuleList(PatchBlock(size) for _ in range(size.layers))

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Hidden states [n, 16, width] of all slots at once, for training: `tokens` [n, 16, 4], `labels` [n]."""
        shifted = torch.cat((torch.zeros_like(tokens[:, :1]), tokens[:, :-1]), 1)
        first = torch.arange(PATCHES)[None, :, None] == 0
        hidden = self.embed(shifted).masked_fill(first, 0.0) + self.position + self.label[labels][:, None]
        mask = torch.ones(PATCHES, PATCHES, dtype=torch.bool).tril()
        for block in self.blocks:
            hidden = block(hidden, mask, None)
        return F.layer_norm(hidden, (self.size.width,))

    def cache(self, images: int) -> PatchCache:
        """An empty cache for so many images."""
        shape = (len(self.blocks), images, self.size.heads, PATCHES + 1, self.size.width // self.size.heads)
        return PatchCache(torch.zeros(shape), torch.zeros(shape))

    def step(self, cache: PatchCache, rows: Tensor, slots: Tensor, tokens: Tensor, labels: Tensor) -> Tensor:
        """Hidden states [n, s, width] of these slots [n, s] of the images `rows` [n]; writes the cache.

        `tokens` [images, 16, 4] and `labels` [images] are those of all images. A slot outside 0 to 15 is padding.
        """
        padding = (slots < 0) | (slots >= PATCHES)
        own, before = slots.clamp(0, PATCHES - 1), (slots - 1).clamp(0, PATCHES - 1)
        rows = rows[:, None]
        hidden = self.embed(tokens[rows, before]).masked_fill((own == 0)[..., None], 0.0)
        hidden = hidden + self.position[own] + self.label[labels[rows]]
        slots = slots.masked_fill(padding, PATCHES)
        mask = (torch.arange(PATCHES + 1) <= slots[..., None])[:, None]
        for layer, block in enumerate(self.blocks):
            hidden = block(hidden, mask, (cache.keys[layer], cache.values[layer], rows, slots))
        return F.layer_norm(hidden, (self.size.width,))
