"""The loss of a block drafter: each slot by itself, the correction along the true text, and the confidence.

Per anchor L = sum_k w_k (slot_k + a ce_k + b bce_k), a and b the drafter's weights. slot_k and w_k are the objective's
(`objective.py`); ce_k is the cross-entropy of the corrected distribution over the slot's candidates, given the true
token before it, which under an accepted prefix is the input of inference; bce_k compares the confidence with
1 - 1/2 |p - q|_1, the probability that rejection sampling accepts a token of the corrected distribution q (DSpark,
arXiv 2607.05147). A slot whose best token is outside the head trains the confidence alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.training.data.batches import Batch
from specdec_lib.training.losses.block_masks import drawn_anchors
from specdec_lib.training.losses.chunked_head import TeacherRows, pieces, slot_losses, teacher_rows, weighted_loss
from specdec_lib.training.losses.objective import Objective, mean
from specdec_lib.training.nets.decoder_layer import scaled


class AnchorSlots(NamedTuple):
    """Slots of random blocks, [B * A, block] each: whether it is trained, the token before it, the target there."""

    within: Tensor                                 # bool: its token and all before it in the block are in the answer
    before: Tensor                                 # the true token before it
    dist: TeacherRows                              # of all slots, flattened [B * A * block, K]
    mass: Tensor                                   # [B * A * block] share of the target's mass on the head's tokens


def block_loss(drafter, batch: Batch, objective: Objective) -> tuple[Tensor, dict[str, list[float]]]:
    """The loss per anchor, and per slot its own mean loss and the share of proposed tokens that are the target's."""
    anchors, valid = some_anchors(batch, drafter.anchors)
    x = drafter.blocks(batch.tokens, anchors, drafter.context(batch)).flatten(0, 1)            # [B * A, block, hidden]
    drawn = slots_at(drafter, batch, anchors, valid)
    chosen = drawn.within.flatten()
    x, before = x.flatten(0, 1)[chosen], drawn.before.flatten()[chosen]
    dist, mass = TeacherRows(*(part[chosen] for part in drawn.dist)), drawn.mass[chosen]
    weight = weights(drafter, objective, x, dist, drawn.within)[chosen]
    taught = weight * dist.covered
    total, slots = weighted_loss(x, drafter.frozen.rows, dist, taught, objective.slot)

    columns, logits, e = corrected_logits(drafter, x, before)
    p = on_candidates(dist, columns)
    logq = torch.log_softmax(logits, -1)
    total = total - drafter.correction_weight * (taught * (p * logq).sum(-1)).sum()
    overlap = torch.minimum(p * mass[:, None], logq.detach().exp()).sum(-1)
    said = confidence_logit(drafter, x, e)
    total = total + drafter.confidence_weight * (
        weight * F.binary_cross_entropy_with_logits(said, overlap, reduction="none")).sum()

    walked = columns.gather(1, logits.argmax(-1, keepdim=True))[:, 0]
    right = ((walked == dist.columns[:, 0]) & dist.covered).float()
    depth = torch.arange(drafter.block, device=x.device).repeat(len(drawn.within))[chosen]
    told = {name: [mean(values[depth == k]) for k in range(drafter.block)]
            for name, values in (("loss", slots.loss), ("right", right))}
    return total / max(1, int(drawn.within[:, 0].sum())), told


def some_anchors(batch: Batch, count: int) -> tuple[Tensor, Tensor]:
    """At most `count` anchors of each example [B, A], and which of them are valid; drawn from the batch's seed.

    An anchor is any token before a token of the answer, so the prompt's last one is among them.
    """
    may = batch.drafted(1)
    count = max(1, min(count, int(may.sum(1).max())))
    return drawn_anchors(may, count, torch.Generator().manual_seed(batch.seed))


def slots_at(drafter, batch: Batch, anchors: Tensor, valid: Tensor) -> AnchorSlots:
    """The targets of the slots of the blocks at these anchors."""
    place = anchors[..., None] + torch.arange(drafter.block, device=anchors.device)     # target's row [B, A, block]
    within = valid[..., None] & (place + 1 < batch.stop[:, None, None])
    place = place.clamp(max=batch.tokens.shape[1] - 1).flatten(1)
    ids, logp = (values.gather(1, place[..., None].expand(-1, -1, values.shape[-1])).flatten(0, 1)
                 for values in (batch.top_ids, batch.top_logp))
    mass = (logp.float().exp() * (drafter.frozen.columns[ids] >= 0)).sum(-1)
    before = batch.tokens.gather(1, place).view(-1, drafter.block)
    return AnchorSlots(within.flatten(0, 1), before, teacher_rows(ids, logp, drafter.frozen.columns), mass)


def weights(drafter, objective: Objective, x: Tensor, dist: TeacherRows, within: Tensor) -> Tensor:
    """One weight for every slot [B * A * block], by depth or by the probabilities of the target's best in its block."""
    probs = torch.ones(within.shape, device=x.device)
    if objective.depth != "decay":
        probs = torch.zeros_like(probs)
        probs[within] = slot_losses(x.detach(), drafter.frozen.rows, dist).prob
    return objective.by_depth(probs.T).T.flatten()


def corrected_logits(drafter, x: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Candidates [n, K] of these slots, their corrected logits [n, K], and the embedded token before [n, hidden].

    logits + rows(C) . A e = rows(C) . (x + A e), so the hidden state x also learns from the corrected distribution.
    """
    rows = drafter.frozen.rows
    with torch.no_grad():
        columns = torch.cat([F.linear(part.to(rows.dtype), rows).float().topk(drafter.candidates, -1).indices
                             for part, in pieces(x)])
    e = scaled(drafter.frozen.embed(before), drafter.shape.eps)
    y = x + F.linear(e, drafter.correction)
    logits = torch.cat([torch.einsum("nkh,nh->nk", rows[some], part.to(rows.dtype)).float()
                        for part, some in pieces(y, columns)])
    return columns, logits, e


def confidence_logit(drafter, x: Tensor, e: Tensor) -> Tensor:
    """Logit [n] of the predicted probability that the slot's token is accepted."""
    return (torch.cat((x, e), -1) * drafter.confidence).sum(-1)


def on_candidates(dist: TeacherRows, columns: Tensor) -> Tensor:
    """The target's probabilities [n, K] of these columns."""
    same = columns[:, :, None] == dist.columns[:, None]
    return (same * dist.probs[:, None]).sum(-1)


def best_corrected(drafter, x: Tensor, before: Tensor) -> Tensor:
    """The column [n] with the best corrected logit, given the true tokens `before` [n]."""
    with torch.no_grad():
        found = [corrected_logits(drafter, part, some)[:2] for part, some in pieces(x, before)]
        return torch.cat([columns.gather(1, logits.argmax(-1, keepdim=True))[:, 0] for columns, logits in found])
