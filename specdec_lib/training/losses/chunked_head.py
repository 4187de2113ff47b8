"""The loss of many slots and its gradient, computed in chunks through the head, so that no logits are kept.

The head is the target's embedding, restricted and frozen, so the logits are needed only for the gradient towards the
hidden state before it. Each chunk of rows computes its logits, its loss and that gradient at once, and frees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.training.losses.distillation import SLOT_LOSSES

LABELS = DISTRIBUTION, TOKEN = "distribution", "token"                         # of the target, or the text's own token
PIECE, MANY = {"cpu": 1024}, 16384                 # rows whose logits exist at once; many where calls cost more


def pieces(x: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Rows of x and of the others, as many at once as may have logits on their device."""
    size = PIECE.get(x.device.type, MANY)
    return zip(*(part.split(size) for part in (x, *others)), strict=True)


class TeacherRows(NamedTuple):
    """The target's distribution for n slots, on the columns of a restricted head: `columns [n, K]`, `probs [n, K]`.

    Probabilities outside the head are zero and the others sum to one; `covered [n]` says where the label, the target's
    best token or the text's, is among the columns. Slots that are not covered are not trained (EAGLE-3).
    """

    columns: Tensor
    probs: Tensor
    covered: Tensor


class SlotLosses(NamedTuple):
    """Results of n slots: losses [n], the drafter's best column [n], its probability of the label [n]."""

    loss: Tensor
    best: Tensor
    prob: Tensor


def teacher_rows(top_ids: Tensor, top_logp: Tensor, columns: Tensor) -> TeacherRows:
    """The target on the head's columns; `columns [V]` gives the column of every token, -1 where it has none."""
    place = columns[top_ids]
    probs = top_logp.float().exp() * (place >= 0)
    covered = place[..., 0] >= 0
    return TeacherRows(place.clamp(min=0), probs / probs.sum(-1, keepdim=True).clamp(min=1e-9), covered)


def certain_labels(columns: Tensor) -> TeacherRows:
    """Distributions with all mass on these columns [n]; -1 is a token that the head does not have."""
    covered = columns >= 0
    return TeacherRows(columns.clamp(min=0)[:, None], covered[:, None].float(), covered)


def slot_losses(x: Tensor, head: Tensor, dist: TeacherRows) -> SlotLosses:
    """Slots of these hidden states [n, hidden] without gradients; losses are soft cross-entropies."""
    with torch.no_grad():
        found = [loss_chunk(rows, head, TeacherRows(*parts), "ce", None)[1] for rows, *parts in pieces(x, *dist)]
    return SlotLosses(*(torch.cat(part) for part in zip(*found, strict=True)))


def weighted_loss(x: Tensor, head: Tensor, dist: TeacherRows, weight: Tensor,
                  kind: str = "ce") -> tuple[Tensor, SlotLosses]:
    """The sum over slots of weight x loss, differentiable in x, and the slots. `weight [n]` is a constant."""
    rows, losses, best, prob = HeadLoss.apply(x, head, *dist, weight, kind)
    return rows, SlotLosses(losses, best, prob)


class HeadLoss(torch.autograd.Function):
    """The weighted sum, whose gradient is computed in the forward."""

    @staticmethod
    def forward(ctx, x, head, columns, probs, covered, weight, kind):
        total, gradients, slots = x.new_zeros((), dtype=torch.float32), [], []
        dist = TeacherRows(columns, probs, covered)
        for rows, share, *parts in pieces(x.detach(), weight, *dist):
            gradient, one = loss_chunk(rows, head, TeacherRows(*parts), kind, share)
            total = total + (one.loss * share).sum()
            gradients.append(gradient)
            slots.append(one)
        ctx.save_for_backward(torch.cat(gradients))
        out = SlotLosses(*(torch.cat(part) for part in zip(*slots, strict=True)))
        ctx.mark_non_differentiable(*out)
        return total, *out

    @staticmethod
    def backward(ctx, total, *_):
        return ctx.saved_tensors[0] * total, None, None, None, None, None, None


def loss_chunk(x: Tensor, head: Tensor, dist: TeacherRows, kind: str,
               weight: Tensor | None) -> tuple[Tensor | None, SlotLosses]:
    """The gradient [n, hidden] of sum(weight x loss) and the slots, for one chunk of rows; None without weight."""
    logits = F.linear(x.to(head.dtype), head).float()
    best = logits.argmax(-1)
    lse = torch.logsumexp(logits, -1, keepdim=True)
    target = logits.gather(1, dist.columns)
    prob = (target[:, 0] - lse[:, 0]).exp() * dist.covered
    if kind == "ce":                               # the gradient is q - p, so no graph is needed
        loss = lse[:, 0] * dist.probs.sum(-1) - (dist.probs * target).sum(-1)
        if weight is None:
            return None, SlotLosses(loss, best, prob)
        gradient = logits.sub_(lse).exp_().mul_(dist.probs.sum(-1, keepdim=True))
        gradient.scatter_add_(1, dist.columns, -dist.probs)
    else:
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            p = torch.zeros_like(logits).scatter_add_(1, dist.columns, dist.probs)
            loss = SLOT_LOSSES[kind](logits, p)
            gradient, = torch.autograd.grad(loss.sum(), logits)
    assert weight is not None                      # only the cross-entropy is computed without weights
    gradient = gradient.mul_(weight[:, None]).to(head.dtype)
    return (gradient @ head).to(x.dtype), SlotLosses(loss.detach(), best, prob)
