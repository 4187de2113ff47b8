"""Lenient rules: would a token that the target did not choose have been good enough?

Each rule is a small frozen value with a pure call on one token's standing in the target's law, so it can be asked
about a live forward, a recorded row or numbers made up by hand. A rule bends the law of the output: what uses it is
not lossless. Knows nothing about drafts, trees or what else guards an exchange.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from specdec_lib.types import Refusal, Scores


class Standing(NamedTuple):
    """Where one token stands in the target's law."""

    chance: float
    best: float                                    # the largest chance of that law
    rank: int                                      # 1 = no token is likelier
    entropy: float                                 # of the whole law, nats


Rule = Callable[[Standing], bool]


@dataclass(frozen=True)
class Strict:
    """R0: nothing but the target's own choice."""

    def __call__(self, standing: Standing) -> bool:
        return False


@dataclass(frozen=True)
class RankMargin:
    """R1: among the `rank` likeliest, and at least `margin` times as likely as the best.

    The family of TensorRT-LLM's relaxed acceptance, which bounds rank and distance to the best as well.
    """

    rank: int = 3
    margin: float = 0.5

    def __post_init__(self):
        if self.rank < 1:
            raise Refusal(f"rank must be at least 1, got {self.rank}")
        if not 0 <= self.margin <= 1:
            raise Refusal(f"margin is a share of the best chance, between 0 and 1, got {self.margin}")

    def __call__(self, standing: Standing) -> bool:
        return standing.rank <= self.rank and standing.chance >= self.margin * standing.best


@dataclass(frozen=True)
class Typical:
    """R2: likelier than min(eps, delta exp(-H)), so that a flat law lets more pass than a steep one.

    Source: Cai et al. 2024 (Medusa, arXiv 2401.10774), typical acceptance. The best token always passes for
    delta < 1, since no law has max p < exp(-H).
    """

    eps: float = 0.09                              # Medusa's posterior_threshold as Spec-Bench runs it
    delta: float = 0.3                             # its posterior_alpha

    def __post_init__(self):
        if not (0 <= self.eps <= 1 and 0 <= self.delta <= 1):
            raise Refusal(f"eps and delta lie between 0 and 1, got {self.eps} and {self.delta}")

    def __call__(self, standing: Standing) -> bool:
        return standing.chance > min(self.eps, self.delta * math.exp(-standing.entropy))


def standing(scores: Scores, row: int, token: int, temperature: float = 1.0) -> Standing:
    """How `token` stands in the softmax of `row` at this temperature, before any top-k or top-p."""
    logits = scores.logits[row]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    best, own = float(logits.max()), scores.logit(row, token)
    rank = 1 + int((logits > own).sum())
    if temperature == 1:                           # a recording knows these two of the whole vocabulary
        brief = scores.brief((row,))
        lse, entropy = brief.lse[0], brief.entropy[0]
    else:
        logits = logits / temperature
        lse, entropy = float(logits.logsumexp(-1)), float(torch.special.entr(torch.softmax(logits, -1)).sum())
    return Standing(math.exp(own / temperature - lse), math.exp(best / temperature - lse), rank, entropy)
