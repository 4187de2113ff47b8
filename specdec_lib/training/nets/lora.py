"""A decoder layer that learns a low-rank difference: fixed matrices plus products of two thin ones.

Source: Hu et al. 2021 (LoRA), here at a high rank and without a scale. Training at the rank that is
stored leaves rounding as the only loss when it is written.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.weights import MATRICES
from specdec_lib.training.nets.decoder_layer import TrainableLayer, scaled


class LowRankLayer(TrainableLayer):
    """`TrainableLayer` whose matrices [out, in] start as `state` and change by left [out, rank] right [rank, in]."""

    def __init__(self, shape: LlamaConfig, state: dict[str, Tensor], rank: int, seed: int = 0):
        nn.Module.__init__(self)
        self.shape, dice = shape, torch.Generator().manual_seed(seed)
        self.left, self.right = nn.ParameterDict(), nn.ParameterDict()
        for name in MATRICES:
            self.register_buffer(f"fixed_{name}", state[name].float().clone(), persistent=False)
            out, into = state[name].shape
            thin = min(rank, out, into)
            self.left[name] = nn.Parameter(torch.zeros(out, thin))
            self.right[name] = nn.Parameter(torch.randn(thin, into, generator=dice) * into ** -0.5)

    def matrix(self, name: str) -> Tensor:
        """The current matrix, differentiable in both factors."""
        return getattr(self, f"fixed_{name}") + self.left[name] @ self.right[name]

    qkv, out, gate_up, down = (  # pyright: ignore[reportAssignmentType]  read as the parent's tensors are
        property(lambda self, name=name: self.matrix(name)) for name in MATRICES)

    def take(self, name: str, matrix: Tensor) -> None:
        """Replaces the matrix and sets its learned difference to zero."""
        with torch.no_grad():
            getattr(self, f"fixed_{name}").copy_(matrix)
            self.left[name].zero_()


class GatedLayer(LowRankLayer):
    """`LowRankLayer` whose attention and MLP are multiplied by `gates` [hidden] before they are added: zero at first.

    So a drafter with this layer behind others starts as the drafter without it.
    """

    def __init__(self, shape: LlamaConfig, state: dict[str, Tensor], rank: int, seed: int = 0):
        super().__init__(shape, state, rank, seed)
        self.gates = nn.ParameterDict({name: torch.zeros(shape.hidden) for name in ("attention", "mlp")})

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.gates["attention"] * F.linear(attended.transpose(1, 2).flatten(-2), self.out)
        gate, up = F.linear(scaled(x, self.shape.eps), self.gate_up).chunk(2, -1)
        return x + self.gates["mlp"] * F.linear(F.silu(gate) * up, self.down)
