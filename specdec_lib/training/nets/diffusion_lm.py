"""A small diffusion language model in training: some of the target's layers, and a vector for unknown tokens.

The text is read causally, and blocks of masks follow its tokens (`block_masks.py`), so one forward trains three things:
the text's rows on the next token (as at block size one; TiDAR, arXiv 2511.08923), wholly masked blocks on drafting in
one step, and randomly masked blocks (`random_masking.py`) on one of several steps. Logits stay shifted: a row gives the
distribution of the token after it, so that training starts from a language model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.heads.diffusion import ATTENTION, CAUSAL, FULL
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.losses.block_masks import Blocks, in_parts
from specdec_lib.training.losses.diffusion import Mix, diffusion_loss, draw_masks
from specdec_lib.training.losses.full_diffusion import full_diffusion_loss
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.base import Frozen, normed
from specdec_lib.training.nets.decoder_layer import (
    TrainableLayer,
    causal,
    fused_state,
    kept_tensors,
    layers_of,
    load_tensors,
    scaled,
)
from specdec_lib.training.nets.lora import LowRankLayer

TOGETHER = 64                                      # anchors of a text whose blocks are computed at once
RANK = 96                                          # of the difference from the target's layers, trained and stored
Seen = list[tuple[Tensor, Tensor]]                 # keys and values of a text in every layer
MIX = Mix()


def spread_layers(layers: int, count: int = 6) -> tuple[int, ...]:
    """Which of the target's layers to start from: evenly spaced, the first and the last among them; at most half."""
    count = min(count, -(-layers // 2))
    return tuple(round(i * (layers - 1) / max(1, count - 1)) for i in range(count))


class DiffusionNet(nn.Module):
    """The drafter in training (see `nets.base.TrainableDrafter`), with a loss of its own.

    `chosen` are the target's layers it starts from; `blocks` the sizes it learns, one drawn for each block; with a
    `rank` of None it trains whole matrices, else differences of that rank.

    With `attention` full it is bidirectional and no drafter: it learns to fill whole answers (`full_diffusion.py`) and
    has no slots. Over `anneal` steps a row sees a growing share of later columns; 0: all from the start.
    """

    levels: tuple[int, ...] = ()
    unrolled = True

    def __init__(self, target: Transformer, ids: Tensor, chosen: tuple[int, ...] = (), blocks: tuple[int, ...] = (4, 8),
                 mix: Mix = MIX, rank: int | None = RANK, attention: str = CAUSAL, anneal: int = 0,
                 random: bool = False):
        super().__init__()
        if attention not in ATTENTION:
            raise ValueError(f"attention is {' or '.join(ATTENTION)}, got {attention!r}")
        self.attention, self.anneal = attention, anneal
        self.frozen, self.shape, self.mix = Frozen(target, ids), target.shape, mix
        self.chosen, self.blocks, self.depth = chosen or spread_layers(target.layers), blocks, max(blocks)
        source = random_weights(replace(target.shape, vocab=1)) if random else target.weights
        states = [fused_state(source.layers[i], self.shape.head_dim) for i in self.chosen]
        self.layers = nn.ModuleList(TrainableLayer(self.shape, state) if rank is None else
                                    LowRankLayer(self.shape, state, rank, i) for i, state in enumerate(states))
        self.norm = nn.Parameter(source.norm.detach().float().cpu().clone())
        self.mask = nn.Parameter(target.weights.embedding.float().mean(0).cpu())

    def slots(self, batch: Batch, depth: int | None = None) -> list[Tensor]:
        """Entry k, row t drafts token t + 1 + k from the tokens up to t and masks, in a block of `depth` slots."""
        return self.slots_at(batch, depth or self.depth, torch.ones_like(batch.tokens) > 0)

    def slots_at(self, batch: Batch, depth: int, anchors: Tensor) -> list[Tensor]:
        """The same at these anchors [B, S] alone; others are zero beyond entry 0, which is the text's row."""
        if self.attention == FULL:
            raise ValueError("a diffusion language model of full attention fills whole texts and has no slots")
        text, before = self.read(batch.tokens)
        out = torch.cat((text[:, :, None], text.new_zeros(*text.shape[:2], depth - 1, text.shape[-1])), 2)
        for texts, rows, real in in_parts(anchors, TOGETHER) if depth > 1 else ():
            blocks = Blocks(rows, torch.full_like(rows, depth), depth)
            made = self.behind(batch.tokens[texts], blocks, None, [(k[texts], v[texts]) for k, v in before])
            out[texts[:, None].expand_as(rows)[real], rows[real], 1:] = made[real]
        return [normed(x, self.norm, self.shape.eps) for x in out.unbind(2)]

    def read(self, tokens: Tensor) -> tuple[Tensor, Seen]:
        """The hidden states [B, S, hidden] of the texts, and their keys and values for the blocks."""
        x, kept, angles = self.frozen.embed(tokens), [], self.frozen.angles(tokens.shape[1])
        for layer in layers_of(self):
            q, k, v = layer.heads(scaled(x, self.shape.eps), *angles)
            kept.append((k, v))
            x = layer.rest(x, causal(q, k, v))
        return x, kept

    def behind(self, tokens: Tensor, blocks: Blocks, masked: Tensor | None, before: Seen) -> Tensor:
        """The hidden states [B, A, rows, hidden] of the blocks; rows not `masked [B, A, rows]` hold true tokens."""
        places, group = blocks.places().flatten(1), self.shape.group
        x = self.mask.expand(*places.shape, -1)
        if masked is not None:
            true = self.frozen.embed(tokens.gather(1, places.clamp(max=tokens.shape[1] - 1)))
            x = torch.where(masked.flatten(1)[..., None], x, true)
        seen = blocks.seen(tokens.shape[1])
        angles = self.frozen.cos[places][:, None], self.frozen.sin[places][:, None]
        for layer, (key, value) in zip(layers_of(self), before, strict=True):
            q, k, v = layer.heads(scaled(x, self.shape.eps), *angles)
            k, v = (torch.cat(pair, 2).repeat_interleave(group, 1) for pair in ((key, k), (value, v)))
            x = layer.rest(x, F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=1.0))
        return x.unflatten(1, (-1, blocks.rows))

    def loss(self, batch: Batch, objective: Objective) -> tuple[Tensor, dict[str, list[float]]]:
        """The mix of losses of one step; see `losses/diffusion.py` and, if attention is full, `full_diffusion.py`."""
        if self.attention == FULL:
            return full_diffusion_loss(self, batch, objective)
        drawn = draw_masks(batch, self.mix, self.blocks)
        text, before = self.read(batch.tokens)
        streams = [text.flatten(0, 1)]
        if drawn.blocks.rows:
            streams.append(self.behind(batch.tokens, drawn.blocks, drawn.masked[..., :-1], before).flatten(0, 2))
        x = normed(torch.cat(streams), self.norm, self.shape.eps)
        return diffusion_loss(x, self.frozen, batch, drawn, self.mix, objective)

    def take(self, state: Mapping[str, Tensor]) -> None:
        """Takes over trained tensors, as `state` gives them."""
        load_tensors(self, ("norm", "mask"), state)

    def state(self) -> dict[str, Tensor]:
        return kept_tensors(self, ("norm", "mask")) | {"ids": self.frozen.ids}

    def meta(self) -> dict:
        if self.attention == FULL:
            return {"layers": list(self.chosen), "shifted": True, "attention": FULL}
        return {"layers": list(self.chosen), "blocks": list(self.blocks), "shifted": True}
