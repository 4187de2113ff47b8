"""Muon: a matrix takes its momentum made orthogonal as its step, so that every direction learns.

Source: Jordan et al. 2024; the scale 0.2 sqrt(longest side), which makes a step as large as AdamW's so that one rate
serves both, is Liu et al. 2025 (arXiv 2502.16982). Vectors take Adam's step.

`torch.optim.Muon` (torch 2.13, `adjust_lr_fn="match_rms_adamw"`, no weight decay) is the same algorithm, but it rounds
differently: it divides by the norm after the cast to bfloat16 and uses `addmm`. A step on a random matrix differs by
2.6% (576 x 1536) to 5.0% (8 x 20) of its norm. It also takes no vectors, and it names its state otherwise than saved
fits do. So this one stays.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from specdec_lib.models.llama.packed_linear import bfloat16_is_fast

QUINTIC = (3.4445, -4.7750, 2.0315)                # coefficients of the iteration, Jordan et al.
STEPS = 5


def orthogonal(matrix: Tensor, steps: int = STEPS, dtype: torch.dtype | None = None) -> Tensor:
    """The matrix with its singular values pushed towards one (about 0.7 to 1.2), computed by matrix products alone.

    They are of `dtype`. None: bfloat16, as published, but float32 on a CPU where torch has no kernels for bfloat16
    and a product of this size takes tens of times as long.
    """
    a, b, c = QUINTIC
    x = matrix.to(dtype or products_dtype(matrix.device)) / (matrix.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return (x.T if tall else x).to(matrix.dtype)


def products_dtype(device: torch.device) -> torch.dtype:
    """The dtype in which a device multiplies the matrices of a step."""
    return torch.bfloat16 if device.type != "cpu" or bfloat16_is_fast() else torch.float32


class Muon(torch.optim.Optimizer):
    """Orthogonal Nesterov momentum for matrices, Adam for vectors; `lr` is on the scale of AdamW's."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, betas: tuple[float, float] = (0.95, 0.95)):
        super().__init__(parameters, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    change = self.change(parameter, *group["betas"])
                    parameter.add_(change, alpha=-group["lr"])

    def change(self, parameter: nn.Parameter, first: float, second: float) -> Tensor:
        """The step that is subtracted from a parameter, at a learning rate of one."""
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None                # `step` leaves the others out
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter)
            if parameter.ndim < 2:
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        average = state["exp_avg"].lerp_(gradient, 1 - first)
        if parameter.ndim == 2:
            return orthogonal(gradient.lerp(average, first)) * (0.2 * max(parameter.shape) ** 0.5)
        square = state["exp_avg_sq"].lerp_(gradient.square(), 1 - second)
        steps = float(state["step"])
        return average / (1 - first ** steps) / ((square / (1 - second ** steps)).sqrt() + 1e-8)
