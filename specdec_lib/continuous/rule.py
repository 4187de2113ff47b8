"""The rule on densities: accept a drafted token with min(1, p/q), else draw from norm(max(0, p - q)).

Source: Leviathan et al. 2023 with densities; Continuous Speculative Decoding (arXiv 2411.11925), its abstract and code.
The residual is drawn by rejection: z from p is taken with probability max(0, 1 - q(z) / p(z)). Over all tokens that is
one proposal a token in expectation, 1 / (1 - alpha) for each rejected one.

With diffusion heads, p and q are the Gaussians of the last step given the noise of all earlier steps. For fixed noise
this is the rule on two known densities, so it is exact whichever noise the target takes, its own or the draft's.
The published ratio multiplies it by a product of sigmas. Along aligned paths p / q is prod(sigma_q / sigma_p): the
densities of two different paths, each at its own place. The map from one path to the other has the Jacobian
prod(sigma_p / sigma_q), which cancels it. So no factor is right; both are here as options, to be measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lib.continuous.densities import Density

NONE, PATHS, CODE = "none", "paths", "code"
SIGN = {NONE: 0, PATHS: 1, CODE: -1}               # of log prod(sigma_q / sigma_p)
PUBLISHED_SOFTENING, PUBLISHED_TRIES = 42.0, 100
BLOCK, LARGEST, MOST = 16, 1 << 12, 1 << 20        # proposals at a time; a residual that needs more is a fault

Draws = Callable[[int, int, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class DensityRule:
    """How a drafted token is tested; the defaults are exact."""

    softening: float = 1.0                         # divides the standardised distance in p and in q; published code: 42
    factor: str = NONE                             # paths: prod(sigma_q / sigma_p) of the earlier steps; code: inverse
    last_noise: bool = True                        # False: the draft takes its last mean, as the published code does
    tries: int | None = None                       # proposals for a residual, then zeros; published code: 100

    def __post_init__(self):
        if self.softening <= 0 or self.factor not in SIGN or self.tries is not None and self.tries < 1:
            raise ValueError(f"softening is above 0, the factor {', '.join(SIGN)}, tries at least 1, got "
                             f"{self.softening}, {self.factor!r} and {self.tries}")
        if self.tries is None and (self.softening != 1 or self.factor != NONE):
            raise ValueError("with softening or a factor p - q may be negative everywhere: give a number of tries")

    @property
    def lossless(self) -> bool:
        """Whether what is emitted has the target's distribution."""
        return self == EXACT


EXACT = DensityRule()
PUBLISHED = DensityRule(PUBLISHED_SOFTENING, CODE, False, PUBLISHED_TRIES)


def log_ratio(p: Density, q: Density, x: Tensor, rule: DensityRule = EXACT) -> Tensor:
    """log p(x) / q(x) [...] as the rule takes it."""
    ratio = p.log_density(x, rule.softening) - q.log_density(x, rule.softening)
    return ratio + SIGN[rule.factor] * (q.path_log_scale - p.path_log_scale) if rule.factor != NONE else ratio


def accepted(p: Density, q: Density, x: Tensor, coin: Tensor, rule: DensityRule = EXACT) -> Tensor:
    """Whether x, drawn from q, is kept: `coin` [...] is uniform on [0, 1)."""
    return coin < log_ratio(p, q, x, rule).exp()


def residual(p: Density, q: Density, draws: Draws, rows: int, dim: int,
             rule: DensityRule = EXACT) -> tuple[Tensor, Tensor]:
    """One draw [rows, dim] from norm(max(0, p - q)) for each row, and the proposals that it took [rows].

    `draws(start, count, rows [m])` gives normal [m, count, dim] and uniform [m, count] numbers twice over, to draw and
    to decide, for the proposals `start`, `start + 1`, ... of these rows. Without a taken proposal among `rule.tries`
    the row is zero. ArithmeticError after `MOST` proposals without that limit.
    """
    found, tries = torch.zeros(rows, dim), torch.zeros(rows, dtype=torch.long)
    open_rows, start, count = torch.arange(rows), 0, BLOCK
    while len(open_rows) and start < (rule.tries or MOST):
        count = min(count, (rule.tries or MOST) - start)
        here, there = (density.map(lambda part, chosen=open_rows: part[chosen].unsqueeze(1)) for density in (p, q))
        normal, pick, coin = draws(start, count, open_rows)
        z = here.draw(normal, pick)
        taken = coin < 1 - (-log_ratio(here, there, z, rule)).exp()
        hit, first = taken.any(1), taken.int().argmax(1)
        found[open_rows[hit]] = z[hit, first[hit]]
        tries[open_rows] = torch.where(hit, start + first + 1, start + count)
        open_rows, start, count = open_rows[~hit], start + count, min(2 * count, LARGEST)
    if len(open_rows) and rule.tries is None:
        raise ArithmeticError(f"{len(open_rows)} residuals without a draw in {MOST:,} proposals: p and q are equal "
                              "where one rejected a value of the other")
    return found, tries
