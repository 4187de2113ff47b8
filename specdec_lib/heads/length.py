"""A length predictor: a small network that predicts, before anything is drafted, how many tokens will be accepted.

Source: AdaEAGLE (arXiv 2412.18910), section 3.2: the embedding of the last token and the target's last normed hidden
state, the one that predicted that token, pass an MLP of three layers with residuals, and a linear map gives one number.
Both inputs are first scaled to the same norm, which is our addition. It runs in float32 whatever the target's dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.base import Target, checked_tensors, new_features, tap_levels
from specdec_lib.models.llama.forward import scaled
from specdec_lib.types import Refusal

DRAFTERS = {"eagle": "eagle", "draft-lm": "draft-model", "early-exit": "early-exit"}      # checkpoint -> its *what*
LAYERS = ("first", "second", "third", "out")


@dataclass(frozen=True)
class LengthWeights:
    """Matrices [out, in] and biases [out] of the four layers; the last one gives a single number."""

    matrices: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    @staticmethod
    def pack(state: Mapping[str, Tensor], drafter: str, target: Target) -> LengthWeights:
        """Those of one drafter, on the target's device. Refusal where there are none or they do not fit the target."""
        there = sorted(name.removesuffix(".out.bias") for name in state if name.endswith(".out.bias"))
        if drafter not in there:
            raise Refusal(f"no length predictor was trained for {drafter}; there are: {', '.join(there) or 'none'}"
                          " (drafter='NAME' takes that of another)")
        first = state.get(f"{drafter}.first.weight")
        wide = len(first) if first is not None else 0
        sizes = ((wide, 2 * target.shape.hidden), (wide, wide), (wide, wide), (1, wide))
        names = {}
        for layer, size in zip(LAYERS, sizes, strict=True):
            names |= {f"{drafter}.{layer}.weight": size, f"{drafter}.{layer}.bias": size[:1]}
        checked_tensors(state, names, target.weights)
        put = [state[name].to(target.device, torch.float32) for name in names]
        return LengthWeights(tuple(put[::2]), tuple(put[1::2]))


def predicted_lengths(embedded: Tensor, states: Tensor, matrices: Sequence[Tensor], biases: Sequence[Tensor],
                      eps: float) -> Tensor:
    """One predicted length for each row of [rows, hidden] embeddings and of the hidden states before these tokens."""
    x = torch.cat((scaled(embedded.float(), eps), scaled(states.float(), eps)), -1)
    x = F.silu(F.linear(x, matrices[0], biases[0]))
    for matrix, bias in zip(matrices[1:-1], biases[1:-1], strict=True):
        x = x + F.silu(F.linear(x, matrix, bias))
    return F.linear(x, matrices[-1], biases[-1])[:, 0]


class LengthPredictor:
    """`predictor(tokens)` is the expected number of accepted draft tokens, a fraction; None for fewer than two tokens.

    It taps the target when made, so make it before the prompt is fed. In the loop it costs no target forward: it reads
    the hidden state of the last token but one, which the target has computed. One number moves to the host.
    """

    def __init__(self, state: Mapping[str, Tensor], drafter: str, target: Target):
        tap_levels(target, (target.layers,))
        self.target, self.weights = target, LengthWeights.pack(state, drafter, target)

    def __call__(self, tokens: tuple[int, ...]) -> float | None:
        if len(tokens) < 2:
            return None
        (_, states), = new_features(self.target, tokens, len(tokens) - 2, (self.target.layers,))
        with torch.inference_mode():
            embedded = self.target.weights.embedding[tokens[-1]][None]
            return float(predicted_lengths(embedded, states[:, 0], self.weights.matrices, self.weights.biases,
                                           self.target.shape.eps))


def length_predictor(checkpoint, drafter: str, target: Target) -> LengthPredictor:
    """The predictor of this drafter from a loaded checkpoint. Refusal where the target keeps no features."""
    tap_levels(target, ())                         # refused first: such a target has no shape to check weights against
    return LengthPredictor(checkpoint.state, drafter, target)
