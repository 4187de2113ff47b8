"""The loss of a diffusion language model: wholly masked blocks, randomly masked blocks, and the plain text.

A wholly masked block is the input of drafting in one step; the objective weights its slots by depth. A randomly masked
block is the input of one of several steps (`random_masking.py`). The text's rows learn the next token, so that a block
of one stays a language model (arXiv 2511.08923). All of them learn the target's distribution under the true text, or
the text's own token (`Objective.labels`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lib.training.data.batches import Batch
from specdec_lib.training.losses.block_masks import Blocks, drawn_anchors
from specdec_lib.training.losses.chunked_head import TeacherRows, slot_losses, weighted_loss
from specdec_lib.training.losses.objective import Objective, mean
from specdec_lib.training.losses.random_masking import hidden_weights, hide_tokens, mask_rates
from specdec_lib.training.nets.base import Frozen


@dataclass(frozen=True)
class Mix:
    """The parts of the loss and their weights; each part is a mean over its blocks or rows."""

    draft: float = 1.0                             # wholly masked blocks, depths weighted by the objective
    masked: float = 1.0                            # randomly masked blocks, hidden tokens weighted by 1 / t
    text: float = 0.5                              # the text's own rows (TiDAR has 0.5 of both halves)
    noised: float = 0.25                           # share of randomly masked blocks
    anchors: int = 64                              # most blocks of each text, drawn again at every step
    spacing: int = 8                               # tokens of the longest text for each block


@dataclass(frozen=True)
class MaskDraw:
    """The blocks of one step. Slot k of a block predicts the token k + 1 positions after its anchor."""

    blocks: Blocks
    real: Tensor                                   # [B, A] false where a text has fewer anchors
    whole: Tensor                                  # [B, A] wholly masked
    rates: Tensor                                  # [B, A] t of the others
    masked: Tensor                                 # [B, A, size] whether the token of a slot is hidden


def draw_masks(batch: Batch, mix: Mix, sizes: tuple[int, ...]) -> MaskDraw:
    """Anchors, block sizes out of `sizes`, rates and masks, all from the batch's seed."""
    dice, device = torch.Generator().manual_seed(batch.seed), batch.tokens.device
    count = max(1, min(mix.anchors, batch.tokens.shape[1] // mix.spacing))
    anchors, real = drawn_anchors(batch.drafted(1), count, dice)
    lengths = torch.tensor(sizes)[torch.randint(len(sizes), anchors.shape, generator=dice)].to(device)
    whole = torch.rand(anchors.shape, generator=dice) >= mix.noised
    t = mask_rates(anchors.shape, dice)
    masked = hide_tokens(t, max(sizes), dice) | whole[..., None]
    return MaskDraw(Blocks(anchors, lengths, max(sizes)), real, whole.to(device), t.to(device), masked.to(device))


def diffusion_loss(x: Tensor, frozen: Frozen, batch: Batch, drawn: MaskDraw, mix: Mix,
                   objective: Objective) -> tuple[Tensor, dict[str, list[float]]]:
    """The mix of losses, and by depth the mean loss and the share of right slots among wholly masked blocks.

    `x [B * S + B * A * rows, hidden]` are the normed hidden states of the texts' rows and then of the blocks'.
    """
    dist, size = frozen.labels(batch, 0, objective.labels), drawn.blocks.size
    row, place, inside = block_slots(batch, drawn.blocks)
    counted = inside & drawn.real[..., None] & dist.covered[place]
    learned = block_weights(x, frozen, dist, row, place, counted, drawn, mix, objective)[counted]
    text = (batch.drafted(1).flatten() & dist.covered & (mix.text > 0)).nonzero()[:, 0]
    spoken = torch.full_like(text, mix.text / max(1, len(text)), dtype=torch.float32)
    taught = teacher_at(dist, torch.cat((text, place[counted])))
    total, slots = weighted_loss(x[torch.cat((text, row[counted]))], frozen.rows, taught, torch.cat((spoken, learned)),
                                 objective.slot)
    right = (slots.best == taught.columns[:, 0]).float()[len(text):]
    depth = torch.where(drawn.whole[..., None], torch.arange(size, device=x.device), -1)[counted]
    return total, {"loss": [mean(slots.loss[len(text):][depth == k]) for k in range(size)],
                   "right": [mean(right[depth == k]) for k in range(size)]}


def block_slots(batch: Batch, blocks: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """Of every slot [B, A, size]: its row in `x`, the text's row that it learns from, and whether it is valid."""
    count, size = batch.tokens.shape
    anchors, slot = blocks.anchors[..., None], torch.arange(blocks.size, device=batch.tokens.device)
    text = torch.arange(count, device=batch.tokens.device)[:, None, None]
    order = torch.arange(blocks.anchors.numel(), device=batch.tokens.device).view(*blocks.anchors.shape, 1)
    row = torch.where(slot == 0, text * size + anchors, count * size + order * blocks.rows + slot - 1)
    inside = (slot < blocks.lengths[..., None]) & (anchors + slot + 1 < batch.stop[:, None, None])
    return row, text * size + (anchors + slot).clamp(max=size - 1), inside


def block_weights(x: Tensor, frozen: Frozen, dist: TeacherRows, row: Tensor, place: Tensor, counted: Tensor,
                  drawn: MaskDraw, mix: Mix, objective: Objective) -> Tensor:
    """The weight of every slot [B, A, size]: by depth in wholly masked blocks, by 1 / t in the others."""
    probs = torch.ones(counted.shape, device=x.device)
    if objective.depth != "decay":
        drafted = counted & drawn.whole[..., None]
        probs = torch.zeros_like(probs)
        probs[drafted] = slot_losses(x[row[drafted]], frozen.rows, teacher_at(dist, place[drafted])).prob
    by_depth = objective.by_depth(probs.flatten(0, 1).T).T.view(counted.shape)
    whole, noised = ((drawn.real & kind).sum().clamp(min=1) for kind in (drawn.whole, ~drawn.whole))
    return torch.where(drawn.whole[..., None], mix.draft / whole * by_depth,
                       mix.masked / noised * hidden_weights(drawn.masked, drawn.rates, counted))


def teacher_at(dist: TeacherRows, places: Tensor) -> TeacherRows:
    """The labels at these flat positions."""
    return TeacherRows(*(part[places] for part in dist))
