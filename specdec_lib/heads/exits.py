"""Exit heads: the next token predicted from a middle layer, through a small adapter and a norm of its own.

The adapter is x + up silu(down scaled(x)); the output rows are the target's own, restricted to the draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.base import PerTarget, checked_tensors, draft_vocabulary
from specdec_lib.heads.drafter_linear import drafter_linear, output_rows
from specdec_lib.models.llama.compiled_linear import normed
from specdec_lib.models.llama.forward import scaled
from specdec_lib.models.llama.weights import Linear, LlamaWeights, code_of
from specdec_lib.types import Refusal


@dataclass(frozen=True)
class ExitHead:
    """Hidden states [rows, hidden] of one layer to logits [rows, len(ids)]."""

    down: Linear                                   # hidden -> rank
    up: Linear
    norm: Tensor                                   # [hidden]
    head: Linear                                   # the target's output rows of `ids`
    ids: Tensor                                    # [rows] the draft vocabulary
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        x = x.to(self.norm.dtype)
        x = x + self.up(F.silu(self.down(scaled(x, self.eps, code_of(self.down)))))
        return self.head(normed(code_of(self.head), x, self.norm, self.eps))


def exit_heads(state: Mapping[str, Tensor], layers: tuple[int, ...], target: LlamaWeights) -> dict[int, ExitHead]:
    """The heads by exit layer; their output rows are packed once. Refusal where they do not fit the target."""
    h = target.shape.hidden
    if not layers:
        raise Refusal("the checkpoint names no exit layer: train it again")
    ids = draft_vocabulary(state, target)
    head, out = output_rows(target, ids), {}
    for layer in layers:
        if not 0 < layer <= target.shape.layers:
            raise Refusal(f"the checkpoint has an exit after layer {layer} and this target has {target.shape.layers}:"
                          " it was trained for another model")
        names = {f"exit.{layer}.{name}": shape for name, shape in (("down", (-1, h)), ("up", (h, -1)), ("norm", (h,)))}
        down, up, norm = checked_tensors(state, names, target).values()
        out[layer] = ExitHead(drafter_linear(down, target), drafter_linear(up, target), norm, head, ids,
                              target.shape.eps)
    return out


PACKED = PerTarget(lambda checkpoint, target: exit_heads(checkpoint.state, tuple(checkpoint.meta["layers"]), target))
