"""From a hidden state to the density of a patch: a Gaussian mixture, or a small diffusion network.

The diffusion head follows MAR (arXiv 2406.11838): an MLP with adaptive layer norms denoises each token by itself, in
`STEPS` steps of a cosine schedule, and learns the variance of each step (Nichol and Dhariwal 2021, section 3.1). It
predicts velocities (Salimans and Ho 2022), which stay bounded where the first step amplifies errors of the noise. No
classifier-free guidance. Unlike the published code, the last step adds noise too: without it there is no density.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.continuous.densities import HALF_LOG_TAU, Density, GaussianMixture, LastStep
from specdec_lib.continuous.digits import DIM
from specdec_lib.continuous.transformer import Size

COMPONENTS, NARROWEST, WIDEST = 12, 0.03, 1.0      # of a mixture; its scales
STEPS = 25                                         # denoising steps
EACH = 4                                           # noise levels that a patch is trained at in one step


class PatchHead(Protocol):
    """What the loop asks of a head; `draws` are the rows of noise that one patch takes."""

    draws: int

    def density(self, hidden: Tensor, normals: Tensor) -> Density: ...
    def loss(self, hidden: Tensor, tokens: Tensor, dice: torch.Generator) -> Tensor: ...


class MixtureHead(nn.Module):
    """A Gaussian mixture whose parameters are linear in the hidden state."""

    draws = 1

    def __init__(self, size: Size, components: int = COMPONENTS):
        super().__init__()
        self.components = components
        self.out = nn.Linear(size.width, components * (1 + 2 * DIM))
        with torch.no_grad():
            self.out.bias.uniform_(-1, 1)          # components start apart

    def density(self, hidden: Tensor, normals: Tensor) -> GaussianMixture:
        """The density of the next patch after `hidden` [..., width]; the noise plays no part in it."""
        weights, rest = self.out(hidden).split((self.components, 2 * DIM * self.components), -1)
        means, scales = rest.view(*hidden.shape[:-1], self.components, 2 * DIM).chunk(2, -1)
        low, high = math.log(NARROWEST), math.log(WIDEST)
        return GaussianMixture(weights.log_softmax(-1), means, low + (high - low) * scales.sigmoid())

    def loss(self, hidden: Tensor, tokens: Tensor, dice: torch.Generator) -> Tensor:
        """Mean negative log-density in nats per patch."""
        return -self.density(hidden, tokens).log_density(tokens).mean()


class NoiseSchedule(NamedTuple):
    """By step t = 1 ... T, at index t - 1: `keep` = alpha-bar, `keep_before`, `beta`."""

    keep: Tensor
    keep_before: Tensor
    beta: Tensor


def cosine_schedule(steps: int = STEPS) -> NoiseSchedule:
    """The cosine schedule (Nichol and Dhariwal 2021, equation 17) in so many steps."""
    places = torch.arange(steps + 1, dtype=torch.float64) / steps
    curve = torch.cos((places + 0.008) / 1.008 * math.pi / 2) ** 2
    beta = (1 - curve[1:] / curve[:-1]).clamp(max=0.999)
    keep = (1 - beta).cumprod(0)
    before = torch.cat((torch.ones(1, dtype=keep.dtype), keep[:-1]))
    return NoiseSchedule(keep.float(), before.float(), beta.float())


class DiffusionHead(nn.Module):
    """An MLP that denoises one patch, given its hidden state."""

    def __init__(self, size: Size, steps: int = STEPS):
        super().__init__()
        wide = size.head_width
        self.steps, self.draws, self.schedule = steps, steps + 1, cosine_schedule(steps)
        self.condition = nn.Linear(size.width, wide)
        self.time = nn.Parameter(0.5 * torch.randn(steps, wide))
        self.enter = nn.Linear(DIM, wide)
        self.modulate = nn.ModuleList(nn.Linear(wide, 2 * wide) for _ in range(size.head_layers))
        self.first = nn.ModuleList(nn.Linear(wide, wide) for _ in range(size.head_layers))
        self.second = nn.ModuleList(nn.Linear(wide, wide) for _ in range(size.head_layers))
        self.leave = nn.Linear(wide, 2 * DIM)

    def step(self, x: Tensor, step: Any, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted velocity and log sigma [..., D] of the step `step` (t - 1) at x [..., D]."""
        given = F.silu(condition + self.time[step])
        hidden = self.enter(x)
        for modulate, first, second in zip(self.modulate, self.first, self.second, strict=True):
            scale, shift = modulate(given).chunk(2, -1)
            inner = F.layer_norm(hidden, hidden.shape[-1:]) * (1 + scale) + shift
            hidden = hidden + second(F.silu(first(inner)))
        velocity, wide = self.leave(F.layer_norm(hidden, hidden.shape[-1:])).chunk(2, -1)
        return velocity, 0.5 * self.schedule.beta[step][..., None].log() - 0.3 + wide.tanh()

    def mean(self, x: Tensor, velocity: Tensor, step: Any) -> Tensor:
        """The mean of the patch one step earlier, from the clean patch that this velocity stands for."""
        keep = self.schedule.keep[step][..., None]
        return self.posterior(x, keep.sqrt() * x - (1 - keep).sqrt() * velocity, step)

    def posterior(self, x: Tensor, clean: Tensor, step: Any) -> Tensor:
        """The mean one step earlier where the clean patch is known (Ho et al. 2020, equation 7)."""
        beta, keep, before = (part[step][..., None] for part in
                              (self.schedule.beta, self.schedule.keep, self.schedule.keep_before))
        return (before.sqrt() * beta * clean + (1 - beta).sqrt() * (1 - before) * x) / (1 - keep)

    def density(self, hidden: Tensor, normals: Tensor) -> LastStep:
        """The last step's Gaussian after denoising with this noise: `normals` [..., steps + 1, D].

        Row 0 is the initial noise, row j the noise that the j-th step adds; the last row belongs to the last step and
        is not read here.
        """
        condition, x = self.condition(hidden), normals[..., 0, :]
        path = torch.zeros_like(x[..., 0])
        for row, step in enumerate(range(self.steps - 1, 0, -1), 1):
            velocity, log_scale = self.step(x, step, condition)
            x = self.mean(x, velocity, step) + log_scale.exp() * normals[..., row, :]
            path = path + log_scale.sum(-1)
        velocity, log_scale = self.step(x, 0, condition)
        return LastStep(self.mean(x, velocity, 0), log_scale, path)

    def loss(self, hidden: Tensor, tokens: Tensor, dice: torch.Generator) -> Tensor:
        """Squared error of the velocity, and the variational bound for the variances alone, both per number."""
        hidden, tokens = (part[..., None, :].expand(*part.shape[:-1], EACH, part.shape[-1]) for part in
                          (hidden, tokens))
        step = torch.randint(self.steps, tokens.shape[:-1], generator=dice)
        noise = torch.randn(tokens.shape, generator=dice)
        keep = self.schedule.keep[step][..., None]
        x = keep.sqrt() * tokens + (1 - keep).sqrt() * noise
        velocity, log_scale = self.step(x, step, self.condition(hidden))
        true = keep.sqrt() * noise - (1 - keep).sqrt() * tokens
        return F.mse_loss(velocity, true) + self.bound(x, tokens, velocity.detach(), log_scale, step).mean()

    def bound(self, x: Tensor, tokens: Tensor, velocity: Tensor, log_scale: Tensor, step: Tensor) -> Tensor:
        """Nats of the true step under the predicted one [..., D], up to the true one's entropy (equation 5 there)."""
        beta, keep, before = (part[step][..., None] for part in
                              (self.schedule.beta, self.schedule.keep, self.schedule.keep_before))
        spread = beta * (1 - before) / (1 - keep)
        apart = (self.posterior(x, tokens, step) - self.mean(x, velocity, step)) ** 2 + spread
        return 0.5 * apart * (-2 * log_scale).exp() + log_scale + HALF_LOG_TAU
