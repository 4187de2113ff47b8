"""Worlds of one dimension whose answers are known: two Gaussians, and denoising chains of Gaussian data.

The denoiser of N(mean, scale^2) is known in closed form, and every step of its chain is a Gaussian, so the
distribution that the chain ends in is a Gaussian too: what speculation emits can be compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_lib.continuous.densities import Density, LastStep, gaussian
from specdec_lib.continuous.heads import NoiseSchedule, cosine_schedule
from specdec_lib.continuous.rule import EXACT, DensityRule, accepted, residual

COUNT, SPAN = 4001, 12.0                           # points of a numerical integral, and where they lie


class Speculated(NamedTuple):
    """Tokens [n], whether the drafted one was kept [n], and the proposals for each residual [rejected]."""

    values: Tensor
    kept: Tensor
    tries: Tensor

    @property
    def acceptance(self) -> float:
        return float(self.kept.float().mean())

    @property
    def mean_tries(self) -> float:
        """Proposals for a residual, on average; not a number without a rejected token."""
        return float(self.tries.double().mean())


def speculate(p: Density, q: Density, drafted: Tensor, dice: torch.Generator,
              rule: DensityRule = EXACT) -> Speculated:
    """One token for each drafted value [n, 1]; p and q have one row each, or one for each value."""
    kept = accepted(p, q, drafted, torch.rand(len(drafted), generator=dice), rule)
    where = (~kept).nonzero()[:, 0]

    def rows(part: Tensor) -> Tensor:
        return (part if len(part) == len(drafted) else part[None].expand(len(drafted), *part.shape))[where]

    def draws(start: int, count: int, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        size = len(chosen), count
        return (torch.randn(*size, 1, generator=dice), torch.rand(size, generator=dice),
                torch.rand(size, generator=dice))

    found, tries = residual(p.map(rows), q.map(rows), draws, len(where), 1, rule)
    values = drafted.clone()
    values[where] = found
    return Speculated(values[:, 0], kept, tries)


def two_gaussians(p: tuple[float, float], q: tuple[float, float], count: int, seed: int = 0) -> Speculated:
    """Speculative sampling of p with drafts of q, both (mean, scale)."""
    dice = torch.Generator().manual_seed(seed)
    drafted = q[0] + q[1] * torch.randn(count, 1, generator=dice)
    return speculate(gaussian(*p), gaussian(*q), drafted, dice)


def overlap(p: tuple[float, float], q: tuple[float, float]) -> float:
    """The integral of min(p, q): the probability that a drafted token is accepted."""
    x = torch.linspace(-SPAN, SPAN, COUNT, dtype=torch.float64)[:, None]
    least = torch.minimum(gaussian(*p).log_density(x), gaussian(*q).log_density(x)).exp()
    return float(torch.trapezoid(least, x[:, 0]))


def density_curves(p: tuple[float, float], q: tuple[float, float], points: int = 161,
                   span: float = 4.0) -> tuple[list[float], dict[str, list[float]]]:
    """Places, and the densities there: p, q, the part of q that is accepted, and the residual (all zero if p = q)."""
    x = torch.linspace(-span, span, points)[:, None]
    one, two = (gaussian(*pair).log_density(x).exp() for pair in (p, q))
    kept = torch.minimum(one, two)
    rest = max(1 - overlap(p, q), 1e-12)
    curves = {"p": one, "q": two, "accepted": kept, "residual": (one - kept) / rest}
    return x[:, 0].tolist(), {name: values.tolist() for name, values in curves.items()}


@dataclass(frozen=True)
class GaussianChain:
    """The denoising chain of N(mean, scale^2); sigma of each step is sqrt(beta) times `spread`."""

    mean: float
    scale: float
    spread: float = 1.0
    schedule: NoiseSchedule = cosine_schedule(10)

    def density(self, normals: Tensor) -> LastStep:
        """The last step after denoising with this noise [..., steps + 1, 1], as `DiffusionHead.density`."""
        x, path = normals[..., 0, :], torch.zeros_like(normals[..., 0, 0])
        for row, step in enumerate(range(len(self.schedule.beta) - 1, 0, -1), 1):
            scale = self.sigma(step)
            x, path = self.step(x, step) + scale * normals[..., row, :], path + scale.log()
        return LastStep(self.step(x, 0), self.sigma(0).log().expand_as(x), path)

    def sigma(self, step: int) -> Tensor:
        return self.spread * self.schedule.beta[step].sqrt()

    def step(self, x: Tensor, step: int) -> Tensor:
        """The mean one step earlier: the posterior mean for Gaussian data, in Ho et al.'s equation 7."""
        slope, shift = self.affine(step)
        return slope * x + shift

    def affine(self, step: int) -> tuple[Tensor, Tensor]:
        """Slope and shift of `step`."""
        beta, keep, before = (part[step] for part in (self.schedule.beta, self.schedule.keep,
                                                      self.schedule.keep_before))
        gain = self.scale ** 2 * keep.sqrt() / (keep * self.scale ** 2 + 1 - keep)     # of x, in the denoised value
        given = before.sqrt() * beta / (1 - keep)
        own = (1 - beta).sqrt() * (1 - before) / (1 - keep)
        return given * gain + own, given * (1 - gain * keep.sqrt()) * self.mean

    def law(self) -> tuple[float, float]:
        """Mean and scale of what the chain ends in, in closed form."""
        mean, variance = 0.0, 1.0
        for step in range(len(self.schedule.beta) - 1, -1, -1):
            slope, shift = (float(part) for part in self.affine(step))
            mean, variance = slope * mean + shift, slope ** 2 * variance + float(self.sigma(step)) ** 2
        return mean, variance ** 0.5

    def draw(self, count: int, dice: torch.Generator) -> Tensor:
        """Noise for `count` tokens [count, steps + 1, 1]."""
        return torch.randn(count, len(self.schedule.beta) + 1, 1, generator=dice)


def two_chains(target: GaussianChain, draft: GaussianChain, count: int, aligned: bool = True,
               rule: DensityRule = EXACT, seed: int = 0) -> Speculated:
    """Speculative sampling of one denoising chain with drafts of another."""
    dice = torch.Generator().manual_seed(seed)
    noise = draft.draw(count, dice)
    q = draft.density(noise)
    p = target.density(noise if aligned else target.draw(count, dice))
    last = noise[:, -1] if rule.last_noise else torch.zeros_like(noise[:, -1])
    return speculate(p, q, q.draw(last, last[:, 0]), dice, rule)
