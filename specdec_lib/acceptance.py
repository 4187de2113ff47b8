"""Lenient rules: whether a token that the target did not choose is likely enough to be accepted.

Each rule is a small frozen value with a pure call on one token's standing under the target, so it applies to a live
forward, a recorded row or numbers made by hand. A rule changes the distribution of the output: a part that uses it is
not lossless. Knows nothing about drafts, trees or further guards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specdec_lib.lazy import torch
from specdec_lib.scores import Categorical, Scores
from specdec_lib.types import Refusal


class TargetStanding(NamedTuple):
    """Probability and rank of one token under the target, with the best probability and the entropy of its row."""

    prob: float
    best: float                                    # the largest probability of the row
    rank: int                                      # 1 = no token is more probable
    entropy: float                                 # of the whole row, nats


Rule = Callable[[TargetStanding], bool]


@dataclass(frozen=True)
class ExactOnly:
    """R0: accepts nothing but the target's own choice."""

    def __call__(self, standing: TargetStanding) -> bool:
        return False


@dataclass(frozen=True)
class RankMargin:
    """R1: among the `rank` most probable, and at least `margin` times as probable as the best.

    The family of TensorRT-LLM's relaxed acceptance, which bounds rank and distance to the best as well.
    """

    rank: int = 3
    margin: float = 0.5

    def __post_init__(self):
        if self.rank < 1:
            raise Refusal(f"rank must be at least 1, got {self.rank}")
        if not 0 <= self.margin <= 1:
            raise Refusal(f"margin is a share of the best probability, between 0 and 1, got {self.margin}")

    def __call__(self, standing: TargetStanding) -> bool:
        return standing.rank <= self.rank and standing.prob >= self.margin * standing.best


def top_beta(beta: int = 3, tolerance: float = 1.0) -> RankMargin:
    """SpecDec's rule as an R1: among the `beta` best, with a raw logit at most `tolerance` below the best one.

    A gap of logits is a ratio of probabilities at temperature 1. Source: Xia et al. 2023 (SpecDec, arXiv 2203.16487).
    """
    if not tolerance >= 0:
        raise Refusal(f"tolerance is a gap of logits, at least 0, got {tolerance}")
    return RankMargin(beta, math.exp(-tolerance))


@dataclass(frozen=True)
class Typical:
    """R2: more probable than min(eps, delta exp(-H)), so that a flat distribution lets more pass than a steep one.

    Source: Cai et al. 2024 (Medusa, arXiv 2401.10774), typical acceptance. The best token always passes for
    delta < 1, since no distribution has max p < exp(-H). As the temperature rises tokens join those that pass and none
    leaves: log p + H = (mean gap - own gap) / temperature, gaps of raw logits to the best, so the second bound is
    met sooner; and p itself falls only where the own gap is below the mean one, where that bound is met already.
    """

    eps: float = 0.09                              # Medusa's posterior_threshold as Spec-Bench runs it
    delta: float = 0.3                             # its posterior_alpha

    def __post_init__(self):
        if not (0 <= self.eps <= 1 and 0 <= self.delta <= 1):
            raise Refusal(f"eps and delta lie between 0 and 1, got {self.eps} and {self.delta}")

    def __call__(self, standing: TargetStanding) -> bool:
        return standing.prob > self.bound(standing.entropy)

    def bound(self, entropy: float) -> float:
        """The probability that must be exceeded at this entropy (nats)."""
        return min(self.eps, self.delta * math.exp(-entropy))


def standing(scores: Scores, row: int, token: int, temperature: float = 1.0) -> TargetStanding:
    """Standing of `token` in the softmax of `row` at this temperature, before any top-k or top-p."""
    logits = scores.logits[row]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    best, own = float(logits.max()), scores.logit(row, token)
    rank = 1 + int((logits > own).sum())
    if temperature == 1:                           # a recording holds these two for the whole vocabulary
        row_stats = scores.row_stats((row,))
        lse, entropy = row_stats.lse[0], row_stats.entropy[0]
    else:
        logits = logits / temperature
        lse, entropy = float(logits.logsumexp(-1)), float(torch.special.entr(torch.softmax(logits, -1)).sum())
    return TargetStanding(math.exp(own / temperature - lse), math.exp(best / temperature - lse), rank, entropy)


def standings(dist: Categorical, tokens: Sequence[int]) -> tuple[TargetStanding, ...]:
    """Standing of each of `tokens` in `dist`, whatever temperature and filters made it; probability 0 outside it."""
    if dist.only is not None:
        return tuple(TargetStanding(dist.probability(token), 1.0, 1 + (token != dist.only), 0.0) for token in tokens)
    best, entropy = float(dist.probs.max()), entropy_nats(dist)
    own = [dist.probability(token) for token in tokens]
    return tuple(TargetStanding(prob, best, 1 + int((dist.probs > prob).sum()), entropy) for prob in own)


def entropy_nats(dist: Categorical) -> float:
    """Entropy of a distribution in nats."""
    return float(torch.special.entr(dist.probs).sum())
