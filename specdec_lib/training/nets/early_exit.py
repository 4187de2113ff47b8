"""Exit heads in training: a small adapter and a norm after some layers, so that the target drafts for itself.

Source: early-exit self-speculation (LayerSkip, Elhoushi et al. 2024; Kangaroo, Liu et al. 2024). The target is frozen;
only the map from a middle layer's hidden state to one that its own head reads is learned.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.nets.base import Frozen, normed, usual_size
from specdec_lib.training.nets.decoder_layer import scaled


def default_exits(layers: int) -> tuple[int, ...]:
    """After a sixth, a third and a half of the layers."""
    return tuple(sorted({max(1, round(layers * share)) for share in (1 / 6, 1 / 3, 1 / 2)}))


class EarlyExitNet(nn.Module):
    """The exit heads in training (see `nets.base.TrainableDrafter`); they share nothing and are trained together."""

    unrolled = False

    def __init__(self, target: Transformer, ids: Tensor, exits: tuple[int, ...] = (), rank: int = 256,
                 random: bool = False):
        super().__init__()
        self.frozen, self.shape = Frozen(target, ids), target.shape
        self.levels, hidden = exits or default_exits(target.layers), target.shape.hidden
        dice = torch.Generator().manual_seed(0)
        self.down = nn.ParameterDict({str(level): torch.randn(rank, hidden, generator=dice) * hidden ** -0.5
                                      for level in self.levels})
        self.up = nn.ParameterDict({str(level): torch.zeros(hidden, rank) for level in self.levels})
        self.size = {str(level): usual_size(target, level) for level in self.levels}
        norm = torch.ones(hidden) if random else target.weights.norm.detach().float().cpu()
        self.norm = nn.ParameterDict({str(level): norm.clone() for level in self.levels})

    def slots(self, batch: Batch, depth: int | None = None) -> list[Tensor]:
        """One entry per exit, in order: row t drafts token t + 1."""
        return [self.exit(batch.streams[level].float(), str(level)) for level in self.levels]

    def exit(self, x: Tensor, level: str) -> Tensor:
        """Normed output of one exit; scaled to the layer's usual size, so that one learning rate suits all levels."""
        small = F.silu(F.linear(scaled(x, self.shape.eps), self.down[level]))
        return normed(x + self.size[level] * F.linear(small, self.up[level]), self.norm[level], self.shape.eps)

    def take(self, state: Mapping[str, Tensor]) -> None:
        """Takes over trained tensors, as `state` gives them."""
        with torch.no_grad():
            for level, size in self.size.items():
                self.down[level].copy_(state[f"exit.{level}.down"])
                self.up[level].copy_(state[f"exit.{level}.up"] / size)
                self.norm[level].copy_(state[f"exit.{level}.norm"])

    def state(self) -> dict[str, Tensor]:
        parts: dict[str, Tensor] = {"ids": self.frozen.ids}
        for level, size in self.size.items():
            parts |= {f"exit.{level}.down": self.down[level].detach(), f"exit.{level}.norm": self.norm[level].detach(),
                      f"exit.{level}.up": self.up[level].detach() * size}
        return parts

    def meta(self) -> dict:
        return {"layers": list(self.levels)}
