"""A block drafter in training: blocks of an anchor and masks that see the target's hidden states before the anchor.

Source: DFlash (arXiv 2602.06036); anchor slot, correction and confidence as in DSpark (arXiv 2607.05147). The layers
start from the target's last ones and `fc` returns the last tap, so the first layer's keys and values of the context are
close to those of the target. Context keys j < anchor are visible: j = anchor would show the hidden state from which the
target itself predicts the label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.losses.block_diffusion import best_corrected, block_loss
from specdec_lib.training.losses.block_masks import in_parts
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.base import Frozen, normed
from specdec_lib.training.nets.decoder_layer import fused_state, kept_tensors, layers_of, load_tensors, scaled
from specdec_lib.training.nets.eagle import default_taps
from specdec_lib.training.nets.lora import LowRankLayer

VECTORS = ("fc", "fc_norm", "norm", "mask", "correction", "confidence")
AT_ONCE = 32                                       # anchors of a sequence whose blocks exist at the same time


class BlockDiffusionNet(nn.Module):
    """The drafter in training (see `nets.base.TrainableDrafter`); anchor t drafts tokens t + 1 to t + `block` at once.

    `chosen` are the target's layers it starts from, `rank` is the rank of each matrix's difference from them.
    """

    unrolled = True

    def __init__(self, target: Transformer, ids: Tensor, taps: tuple[int, ...] = (), chosen: tuple[int, ...] = (),
                 block: int = 8,                   # slots; DSpark 7, DFlash 16 for targets of 4 B and more
                 rank: int = 80,                   # three layers of SmolLM2-135M are 2.0 MB, of 3.6 in all
                 anchors: int = 32,                # blocks of each sequence in a step, drawn again every time
                 candidates: int = 32,             # tokens of a slot that the correction scores
                 correction_weight: float = 0.5,   # weight of the corrected distribution's loss
                 confidence_weight: float = 1.0,   # weight of the confidence's loss (DSpark)
                 random: bool = False):
        super().__init__()
        shape, h = target.shape, target.shape.hidden
        self.frozen, self.shape, self.levels = Frozen(target, ids), shape, taps or default_taps(target.layers)
        self.chosen = chosen or tuple(range(max(0, target.layers - 3), target.layers))
        self.block, self.anchors, self.candidates = block, anchors, min(candidates, len(ids))
        self.correction_weight, self.confidence_weight = correction_weight, confidence_weight
        source = random_weights(replace(shape, vocab=1), seed=1) if random else target.weights
        self.layers = nn.ModuleList(LowRankLayer(shape, fused_state(source.layers[i], shape.head_dim), rank, i)
                                    for i in self.chosen)
        fc = torch.zeros(h, len(self.levels) * h)
        fc[:, -h:] = torch.eye(h)
        if random:
            fc = torch.randn(fc.shape, generator=torch.Generator().manual_seed(0)) * fc.shape[1] ** -0.5
        self.fc, self.fc_norm = nn.Parameter(fc), nn.Parameter(torch.ones(h))
        self.norm = nn.Parameter(source.norm.detach().float().cpu().clone())
        self.mask = nn.Parameter(target.weights.embedding.float().mean(0).cpu())
        self.correction, self.confidence = nn.Parameter(torch.zeros(h, h)), nn.Parameter(torch.zeros(2 * h))

    def loss(self, batch: Batch, objective: Objective) -> tuple[Tensor, dict[str, list[float]]]:
        """The loss per anchor of random blocks of this batch, and figures by slot; see `losses/block_diffusion.py`."""
        return block_loss(self, batch, objective)

    def slots(self, batch: Batch, depth: int | None = None) -> list[Tensor]:
        """Row t of entry k drafts token t + 1 + k, uncorrected. ValueError for more slots than a block has."""
        return self.slots_at(batch, self.block if depth is None else depth, torch.ones_like(batch.tokens) > 0)

    def slots_at(self, batch: Batch, depth: int, anchors: Tensor) -> list[Tensor]:
        """The same at these anchors [B, S] alone, zeros at the others."""
        if depth > self.block:
            raise ValueError(f"a block of {self.block} has no slot {depth}")
        context = self.context(batch)
        out = torch.zeros(*batch.tokens.shape, depth, self.shape.hidden, device=batch.tokens.device)
        for texts, rows, real in in_parts(anchors, AT_ONCE):
            seen = [(keys[texts], values[texts]) for keys, values in context]
            made = self.blocks(batch.tokens[texts], rows, seen)[:, :, :depth]
            out[texts[:, None].expand_as(rows)[real], rows[real]] = made[real]
        return list(out.unbind(2))

    def proposed(self, x: Tensor, before: Tensor) -> Tensor:
        """The column [n] chosen in slots of hidden states x [n, hidden], given the true tokens `before` [n]."""
        return best_corrected(self, x, before)

    def context(self, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Per layer the keys and values [B, kv_heads, S, d] of the target's hidden states."""
        eps, size = self.shape.eps, batch.tokens.shape[1]
        streams = [scaled(batch.streams[level], eps) for level in self.levels]
        c = normed(F.linear(torch.cat(streams, -1), self.fc), self.fc_norm, eps)
        return [layer.heads(c, *self.frozen.angles(size))[1:] for layer in layers_of(self)]

    def blocks(self, tokens: Tensor, anchors: Tensor, context: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Normed hidden states [B, A, block, hidden] of the blocks at these anchors [B, A] of the texts [B, S]."""
        eps, group, size = self.shape.eps, self.shape.group, self.block
        first = self.frozen.embed(tokens.gather(1, anchors))[:, :, None]
        x = torch.cat((first, self.mask.expand(*anchors.shape, size - 1, -1)), 2).flatten(1, 2)
        places = (anchors[..., None] + torch.arange(size, device=x.device)).flatten(1)
        cos, sin = (table[places][:, None] for table in (self.frozen.cos, self.frozen.sin))
        seen = visible(anchors, size, tokens.shape[1])[:, None]
        for layer, (keys, values) in zip(layers_of(self), context, strict=True):
            q, k, v = layer.heads(scaled(x, eps), cos, sin)
            k, v = (torch.cat(pair, 2).repeat_interleave(group, 1) for pair in ((keys, k), (values, v)))
            x = layer.rest(x, F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=1.0))
        return normed(x, self.norm, eps).unflatten(1, (-1, size))

    def take(self, state: Mapping[str, Tensor]) -> None:
        """Takes over trained tensors, as `state` gives them."""
        load_tensors(self, VECTORS, state)

    def state(self) -> dict[str, Tensor]:
        return kept_tensors(self, VECTORS) | {"ids": self.frozen.ids}

    def meta(self) -> dict:
        return {"taps": list(self.levels), "layers": list(self.chosen), "block": self.block,
                "candidates": self.candidates}


def visible(anchors: Tensor, size: int, context: int) -> Tensor:
    """[B, A * size, context + A * size]: a slot sees the context before its anchor and all slots of its own block."""
    at = anchors.repeat_interleave(size, 1)
    block = torch.arange(at.shape[1], device=at.device) // size
    before = torch.arange(context, device=at.device) < at[..., None]
    return torch.cat((before, (block == block[:, None]).expand(len(at), -1, -1)), -1)
