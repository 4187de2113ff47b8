"""A small draft model: a few of the target's layers, its embedding and a restricted head, trained on its answers.

Source: distillation as in DistillSpec (Zhou et al. 2023), with a vocabulary cut as in FR-Spec. It reads tokens alone,
so it can draft at any position, and its second slot is its first slot one token later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.nets.base import Frozen, normed
from specdec_lib.training.nets.decoder_layer import TrainableLayer, causal, fused_state, layers_of, scaled


def outer_layers(layers: int, count: int = 3) -> tuple[int, ...]:
    """Which of the target's layers to start from: the first ones and the last."""
    return tuple(sorted({*range(min(count - 1, layers)), layers - 1}))


class DraftLMNet(nn.Module):
    """The draft model in training (see `TrainableDrafter`); `chosen` are the target's layers it starts from."""

    levels: tuple[int, ...] = ()
    unrolled = False

    def __init__(self, target: Transformer, ids: Tensor, chosen: tuple[int, ...] = (), random: bool = False):
        super().__init__()
        self.frozen, self.shape = Frozen(target, ids), target.shape
        self.chosen = chosen or outer_layers(target.layers)
        source = random_weights(replace(target.shape, vocab=1)) if random else target.weights
        self.layers = nn.ModuleList(TrainableLayer(self.shape, fused_state(source.layers[i], self.shape.head_dim))
                                    for i in self.chosen)
        self.norm = nn.Parameter(source.norm.detach().float().cpu().clone())

    def slots(self, batch: Batch, depth: int | None = None) -> list[Tensor]:
        """One entry: row t drafts token t + 1 from the tokens up to t."""
        x, angles = self.frozen.embed(batch.tokens), self.frozen.angles(batch.tokens.shape[1])
        for layer in layers_of(self):
            x = layer.rest(x, causal(*layer.heads(scaled(x, self.shape.eps), *angles)))
        return [normed(x, self.norm, self.shape.eps)]

    def take(self, state: Mapping[str, Tensor]) -> None:
        """Takes over trained tensors, as `state` gives them."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(state[name])

    def state(self) -> dict[str, Tensor]:
        layers = {f"layers.{i}.{name}": parameter.detach() for i, layer in enumerate(self.layers)
                  for name, parameter in layer.named_parameters()}
        return layers | {"norm": self.norm.detach(), "ids": self.frozen.ids}

    def meta(self) -> dict:
        return {"layers": list(self.chosen)}
