"""Losses of drafters: how far a draft slot is from the target's distribution, and the weight of each depth.

`logits [n, V]` are the drafter's, `p [n, V]` the target's distribution on the same columns; losses are per slot [n], in
nats or probabilities. Sources: TV and LK (arXiv 2602.23881), streak (SpecDiff-2, arXiv 2511.00606), D-PACE (arXiv
2605.18810).
"""

from __future__ import annotations

import torch
from torch import Tensor


def soft_cross_entropy(logits: Tensor, p: Tensor) -> Tensor:
    """-sum_v p(v) log q(v): the forward KL divergence up to the target's own entropy."""
    return -(p * torch.log_softmax(logits.float(), -1)).sum(-1)


def total_variation(logits: Tensor, p: Tensor) -> Tensor:
    """1/2 sum_v |p(v) - q(v)| = 1 - sum_v min(p, q): the probability that rejection sampling rejects the token."""
    return 0.5 * (p - torch.softmax(logits.float(), -1)).abs().sum(-1)


def mixed(logits: Tensor, p: Tensor, share: float = 0.1) -> Tensor:
    """share x cross-entropy + (1 - share) x L1 distance (DSpark): for the end of a run, since TV is flat far from p."""
    return share * soft_cross_entropy(logits, p) + 2 * (1 - share) * total_variation(logits, p)


SLOT_LOSSES = {"ce": soft_cross_entropy, "tv": total_variation, "mixed": mixed}


def decay_weights(probs: Tensor, decay: float = 0.8) -> Tensor:
    """decay^k at depth k (EAGLE-3), for the probabilities [depth, n] of the label in every slot."""
    return (decay ** torch.arange(len(probs), dtype=torch.float32, device=probs.device))[:, None].expand_as(probs)


def streak_weights(probs: Tensor) -> Tensor:
    """sum over m >= j of prod_{i <= m} q_i: with these weights on log q_j the gradient is that of the expected streak.

    The streak objective is A = sum_m prod_{i <= m} q_i, the expected accepted tokens of independent slots. Its labels
    are the text's own tokens; with the target's distribution as the label (`Objective.labels`) the gradient is another.
    """
    prefix = probs.detach().cumprod(0)
    return prefix.flip(0).cumsum(0).flip(0)


def dpace_weights(probs: Tensor, alpha: float = 0.5) -> Tensor:
    """Streak weights of smoothed probabilities (1 - alpha) q + alpha, which do not vanish after a bad early slot."""
    return streak_weights((1 - alpha) * probs.detach() + alpha)


def expected_streak(probs: Tensor) -> Tensor:
    """A = sum_m prod_{i <= m} q_i per anchor [n]: tokens accepted when slot i is accepted with probability q_i."""
    return probs.cumprod(0).sum(0)


DEPTH_WEIGHTS = {"decay": decay_weights, "dpace": dpace_weights, "streak": streak_weights}
