"""H-RAD: a small network that predicts how the target will fare with a draft: it accepts none, some or all of it.

Source: SpecBranch (arXiv 2506.01979), known here second hand: the hidden states of the target's last layers at the last
position that it has read, and the embedding of the token that follows, pass an MLP of three layers with ReLU. The paper
has four layers of the target and widths 256 and 64; here the first width is smaller, for a small checkpoint. Each state
and the embedding are first scaled to the same norm, which is our addition. It runs in float32 whatever the target's
dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.base import Target, checked_tensors, new_features, tap_levels
from specdec_lib.models.llama.forward import scaled
from specdec_lib.types import Session

NAME, DRAFTER = "h-rad", "draft-lm"                # the checkpoint, and the one whose drafts it was trained on
LAYERS = ("first", "second", "out")
CLASSES = ("none", "some", "all")                  # of a draft's tokens that the target accepts, in the network's order
UNSURE = CLASSES.index("some")                     # where nothing is known, the drafter's confidence decides


@dataclass(frozen=True)
class ClassifierWeights:
    """Matrices [out, in] and biases [out] of the three layers, for the states of `levels` and one embedding."""

    levels: tuple[int, ...]
    matrices: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    @staticmethod
    def pack(state: Mapping[str, Tensor], levels: Sequence[int], target: Target) -> ClassifierWeights:
        """On the target's device. Refusal where a tensor is missing or does not fit the target."""
        wide, narrow = (len(state[name]) if name in state else -1 for name in ("first.bias", "second.bias"))
        sizes = ((wide, (len(levels) + 1) * target.shape.hidden), (narrow, wide), (len(CLASSES), narrow))
        names = {}
        for layer, size in zip(LAYERS, sizes, strict=True):
            names |= {f"{layer}.weight": size, f"{layer}.bias": size[:1]}
        checked_tensors(state, names, target.weights)
        put = [state[name].to(target.device, torch.float32) for name in names]
        return ClassifierWeights(tuple(levels), tuple(put[::2]), tuple(put[1::2]))


def last_levels(layers: int, count: int) -> tuple[int, ...]:
    """The levels of the last `count` layers of a target; fewer where it has fewer."""
    return tuple(range(max(1, layers - count + 1), layers + 1))


def class_scores(embedded: Tensor, states: Tensor, matrices: Sequence[Tensor], biases: Sequence[Tensor], eps: float,
                 drop: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
    """Scores [rows, 3] of [rows, hidden] embeddings and the [rows, levels, hidden] states before these tokens.

    `drop` is applied behind each hidden layer: the dropout of training.
    """
    x = torch.cat((states.float().flatten(0, 1), embedded.float()))
    x = scaled(x, eps)
    x = torch.cat((x[:-len(embedded)].reshape(len(embedded), -1), x[-len(embedded):]), -1)
    for matrix, bias in zip(matrices[:-1], biases[:-1], strict=True):
        x = drop(F.relu(F.linear(x, matrix, bias)))
    return F.linear(x, matrices[-1], biases[-1])


class ClassPredictor:
    """`predictor(session)` is the likeliest class of the draft that follows the session's tokens, its place in CLASSES.

    It taps the target when made, so make it before the prompt is fed. In the loop it costs no target forward: it reads
    hidden states of the last token but one, which the target has computed. With fewer than two tokens it is UNSURE.
    """

    def __init__(self, state: Mapping[str, Tensor], levels: Sequence[int], target: Target):
        tap_levels(target, levels)
        self.target, self.weights = target, ClassifierWeights.pack(state, levels, target)

    def __call__(self, session: Session) -> int:
        tokens = session.tokens
        if len(tokens) < 2:
            return UNSURE
        (_, states), = new_features(self.target, tokens, len(tokens) - 2, self.weights.levels)
        with torch.inference_mode():
            embedded = self.target.weights.embedding[tokens[-1]][None]
            return int(class_scores(embedded, states, self.weights.matrices, self.weights.biases,
                                    self.target.shape.eps).argmax())


def class_predictor(checkpoint, target: Target) -> ClassPredictor:
    """The predictor of a loaded checkpoint. Refusal where the target keeps no features or the checkpoint fits not."""
    tap_levels(target, ())                         # refused first: such a target has no shape to check weights against
    return ClassPredictor(checkpoint.state, checkpoint.meta["levels"], target)
