"""Densities of a token: Gaussian mixtures, and the last step of a denoising chain.

All are batched: parameters [..., K, D] or [..., D], values [..., D], log-densities [...]. Log-densities are exact, in
nats. A draw takes its random numbers as arguments, so that target and draft can share them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Protocol, Self

import torch
from torch import Tensor

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Density(Protocol):
    """What the rule asks of p and q."""

    def log_density(self, x: Tensor, softening: float = 1.0) -> Tensor:
        """The log-density of x [..., D]; `softening` divides the standardised distance, and 1 is the density."""
        ...

    def draw(self, normal: Tensor, pick: Tensor) -> Tensor:
        """A value [..., D] from standard normal numbers [..., D] and one uniform number [...]."""
        ...

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same density with this change made to every parameter, such as a choice of rows."""
        ...

    @property
    def path_log_scale(self) -> Tensor:
        """Sum of log sigma over the denoising steps before the last and all dimensions [...]; 0 without such steps."""
        ...


@dataclass(frozen=True)
class GaussianMixture:
    """A mixture of Gaussians with diagonal covariances: `log_weights [..., K]`, `means`, `log_scales [..., K, D]`."""

    log_weights: Tensor
    means: Tensor
    log_scales: Tensor

    def log_density(self, x: Tensor, softening: float = 1.0) -> Tensor:
        if softening != 1:
            raise ValueError(f"a mixture has no standardised distance to soften, got {softening}")
        z = (x[..., None, :] - self.means) * (-self.log_scales).exp()
        parts = (-0.5 * z ** 2 - self.log_scales - HALF_LOG_TAU).sum(-1)
        return torch.logsumexp(self.log_weights + parts, -1)

    def draw(self, normal: Tensor, pick: Tensor) -> Tensor:
        sums = self.log_weights.exp().cumsum(-1)
        chosen = (pick[..., None] * sums[..., -1:] >= sums).sum(-1).clamp(max=sums.shape[-1] - 1)
        row = chosen[..., None, None].expand(*chosen.shape, 1, self.means.shape[-1])
        means, scales = (torch.broadcast_to(part, (*chosen.shape, *part.shape[-2:])).gather(-2, row)[..., 0, :]
                         for part in (self.means, self.log_scales))
        return means + scales.exp() * normal

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return mapped(self, change)

    @property
    def path_log_scale(self) -> Tensor:
        return torch.zeros_like(self.log_weights[..., 0])


@dataclass(frozen=True)
class LastStep:
    """The last step of a denoising chain, given the noise of the steps before it: a Gaussian with `mean`, `log_scale`.

    `path` [...] is the sum of log sigma over the earlier steps and all dimensions.
    """

    mean: Tensor
    log_scale: Tensor
    path: Tensor

    def log_density(self, x: Tensor, softening: float = 1.0) -> Tensor:
        z = (x - self.mean) * (-self.log_scale).exp() / softening
        return (-0.5 * z ** 2 - self.log_scale - HALF_LOG_TAU).sum(-1)

    def draw(self, normal: Tensor, pick: Tensor) -> Tensor:
        return self.mean + self.log_scale.exp() * normal

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return mapped(self, change)

    @property
    def path_log_scale(self) -> Tensor:
        return self.path


def mapped(density, change: Callable[[Tensor], Tensor]):
    """A frozen value of tensors with this change made to each of them."""
    return replace(density, **{field.name: change(getattr(density, field.name)) for field in fields(density)})


def gaussian(mean: float, scale: float) -> GaussianMixture:
    """The normal distribution in one dimension, as a mixture of one component."""
    return GaussianMixture(torch.zeros(1), torch.tensor([[mean]]), torch.tensor([[math.log(scale)]]))
