"""A length predictor in training: its network, a loss that penalises short drafts more, and its figures.

Source: AdaEAGLE (arXiv 2412.18910), sections 3.2 and 3.3: L1, where a draft that is too short counts `weight` times,
since a forward of the target costs as much as many draft steps. The paper does not give the weight; 3 is ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from specdec_lib.heads.length import LAYERS, predicted_lengths
from specdec_lib.training.data.length_labels import UNKNOWN, LengthLabels

ROWS = 8192                                        # predicted at a time


class LengthNet(nn.Module):
    """The network of `heads.length`, trained on a frozen `embedding` [V, hidden]."""

    embedding: Tensor                              # a buffer

    def __init__(self, embedding: Tensor, eps: float, hidden: int = 128, seed: int = 0):
        super().__init__()
        self.eps = eps
        self.register_buffer("embedding", embedding, persistent=False)
        dice = torch.Generator().manual_seed(seed)
        sizes = 2 * embedding.shape[1], hidden, hidden, hidden, 1
        self.weight = nn.ParameterDict({layer: torch.randn(after, before, generator=dice) * before ** -0.5
                                        for layer, before, after in zip(LAYERS, sizes, sizes[1:], strict=False)})
        self.bias = nn.ParameterDict({layer: torch.zeros(size) for layer, size in zip(LAYERS, sizes[1:], strict=True)})

    def forward(self, tokens: Tensor, states: Tensor) -> Tensor:
        """Predicted lengths [n], fractions."""
        return predicted_lengths(self.embedding[tokens], states, [self.weight[layer] for layer in LAYERS],
                                 [self.bias[layer] for layer in LAYERS], self.eps)

    def state(self, name: str) -> dict[str, Tensor]:
        """The tensors of this predictor under the names of a checkpoint that holds several."""
        return {f"{name}.{layer}.{kind}": values[layer].detach() for layer in LAYERS
                for kind, values in (("weight", self.weight), ("bias", self.bias))}

    def take(self, state: Mapping[str, Tensor], name: str) -> None:
        """Copies tensors as `state` gives them into the parameters."""
        with torch.no_grad():
            for layer in LAYERS:
                self.weight[layer].copy_(state[f"{name}.{layer}.weight"])
                self.bias[layer].copy_(state[f"{name}.{layer}.bias"])


def one_sided(predicted: Tensor, labels: Tensor, weight: float) -> Tensor:
    """Mean |label - prediction|, counted `weight` times where the prediction is too short."""
    short = labels - predicted
    return torch.where(short > 0, weight * short, -short).mean()


def known_labels(labels: Tensor) -> Tensor:
    """Indices of positions with a known label."""
    return (labels != UNKNOWN).nonzero()[:, 0]


def predict(model: LengthNet, places: LengthLabels, rows: Tensor) -> Tensor:
    """The network's outputs at these rows of the positions."""
    device = model.embedding.device
    with torch.no_grad():
        parts = [model(places.tokens[some].to(device), places.states[some].to(device)).cpu()
                 for some in rows.split(ROWS)]
    return torch.cat(parts)


def length_figures(numbers: Tensor, labels: Tensor, longest: int, weight: float) -> dict:
    """Errors of predictions (fractions) against labels, beside the best constants chosen on the same labels.

    Predictions are rounded and clamped to 0 .. `longest` as in decoding. `kept` and `wasted` are tokens a round.
    """
    labels = labels.float()
    lengths = numbers.round().clamp(0, longest)
    errors = [float((labels - constant).abs().mean()) for constant in range(longest + 1)]
    losses = [float(one_sided(torch.tensor(float(constant)), labels, weight)) for constant in range(longest + 1)]
    spread = float(lengths.std(unbiased=False) * labels.std(unbiased=False))
    together = float(((lengths - lengths.mean()) * (labels - labels.mean())).mean())
    told = {"mean_label": float(labels.mean()), "mean_length": float(lengths.mean()),
            "mae": float((labels - lengths).abs().mean()), "mae_of_best_constant": min(errors),
            "loss": float(one_sided(lengths, labels, weight)), "loss_of_best_constant": min(losses),
            "best_constants": [errors.index(min(errors)), losses.index(min(losses))],
            "too_short": float((lengths < labels).float().mean()), "too_long": float((lengths > labels).float().mean()),
            "correlation": together / spread if spread else None,
            "kept": float(torch.minimum(lengths, labels).mean()),
            "wasted": float((lengths - labels).clamp(min=0).mean())}
    return {"positions": len(labels)} | {name: round(value, 4) if isinstance(value, float) else value
                                         for name, value in told.items()}
