"""What trained drafters share: checkpoint tensors are checked against a target's weights and packed once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from specdec_lib.hub.load import default_dtype
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.models.llama.decoder import CHUNK, Transformer
from specdec_lib.models.llama.four_bit_linear import FourBitLinear
from specdec_lib.models.llama.four_bit_weights import NARROW
from specdec_lib.models.llama.weights import LlamaWeights
from specdec_lib.models.shared_weights import SharedWeights
from specdec_lib.types import LM, Refusal

Target = Transformer | HuggingFace                 # keeps hidden states: both have weights, shape, tap and features
TargetWeights = LlamaWeights | SharedWeights


def every_output_row(weights: TargetWeights) -> Tensor | None:
    """The target's output rows [V, hidden] of all tokens, where they lie open in memory; None where they are packed."""
    if weights.shape.tied:
        return weights.embedding
    open_ = getattr(weights.head, "weight", None)
    return None if open_ is None or getattr(weights.head, "packed", False) else open_


def output_matrix(weights: TargetWeights) -> Callable[[Tensor], Tensor]:
    """The target's own output matrix, for hidden states in the dtype of these weights; codes read bfloat16."""
    head = weights.head
    return (lambda x: head(x.to(NARROW))) if isinstance(head, FourBitLinear) else head


def drafter_weights(weights: TargetWeights) -> TargetWeights:
    """The target's weights in the dtype in which a published head computes: its own.

    Beside 4-bit codes, whose activations are bfloat16 on every processor, it is that of `hub.load.default_dtype`:
    float32 where bfloat16 is slow. The embedding is then a copy, made once for a target.
    """
    dtype = default_dtype("cpu")
    if getattr(weights, "four_bit", None) is None or weights.dtype == dtype:
        return weights
    return COPIED(weights, weights.embedding)


def shared_weights(target: LM) -> TargetWeights:
    """The target's embedding and output matrix, with which a drafter reads and writes; Refusal where it has none."""
    if isinstance(target, HuggingFace):
        return target.shared_weights()
    if not hasattr(target, "weights"):
        raise Refusal("the drafter needs the target's embedding and output matrix: a recording and a table have none")
    return cast(Transformer, target).weights


def tap_levels(target: Target, levels: Sequence[int]) -> None:
    """Adds the hidden states of these layers to those that the target keeps; call it before the prompt is fed.

    Raises Refusal for a target that keeps no features.
    """
    if not hasattr(target, "tap"):
        raise Refusal("this target keeps no features: a recording and a table have none")
    there = target.cache.taps if hasattr(target, "cache") else ()
    target.tap((*there, *(level for level in levels if level not in there)))


def block_length(slots: int, target: Target) -> int:
    """This many slots of a block; Refusal for none, and for more than the target's context holds."""
    if slots < 1:
        raise Refusal(f"a block has at least one slot, got {slots}")
    if target.context is not None and slots > target.context:
        raise Refusal(f"a block of {slots} slots does not fit into the target's context of {target.context}")
    return slots


def new_features(target: Target, tokens: tuple[int, ...], start: int, levels: Sequence[int]
                 ) -> Iterator[tuple[int, Tensor]]:
    """The target's hidden states [rows, levels, hidden] from row `start` to the one before the last token, in chunks.

    Each chunk comes with its first row. The target feeds what it lacks, which in the loop is nothing.
    """
    stop = len(tokens) - 1
    if start >= stop:
        return
    target.prefill(tokens[:-1])
    streams, taps = target.features(tokens)[:stop], target.cache.taps
    for at in range(start, stop, CHUNK):
        some = streams[at:at + CHUNK]
        yield at, some if taps == tuple(levels) else torch.stack([some[:, taps.index(level)] for level in levels], 1)


def checked_tensors(state: Mapping[str, Tensor], names: Mapping[str, tuple[int, ...]],
                    weights: TargetWeights) -> dict[str, Tensor]:
    """These tensors on the device of the weights: vectors in their dtype, matrices as they are stored.

    `names` gives each tensor's shape; a size of -1 may be anything. Refusal for a missing one and for another shape.
    """
    for name, shape in names.items():
        if name not in state:
            raise Refusal(f"the checkpoint lacks the tensor {name}: train it again or copy it again")
        there = tuple(state[name].shape)
        if len(there) != len(shape) or any(want not in (-1, have) for want, have in zip(shape, there, strict=True)):
            raise Refusal(f"the checkpoint's {name} has the shape {there}, this target needs {shape}:"
                          " it was trained for another model")
    return {name: state[name].to(weights.device, weights.dtype if state[name].ndim == 1 else None) for name in names}


def real_tensor(drafter: str, name: str, read: Callable[[str], Tensor], dtype: torch.dtype) -> Tensor:
    """A tensor of a published drafter in this dtype; Refusal where it holds what is no number."""
    stored = read(name)
    if stored.dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise Refusal(f"the tensor {name} of {drafter} is stored as {stored.dtype}, and not as real numbers of 16 bits"
                      " or more: fetch the head again")
    tensor = stored.to(dtype)
    if not torch.isfinite(tensor).all():
        raise Refusal(f"the tensor {name} of {drafter} holds numbers that are not finite: fetch the head again")
    return tensor


def draft_vocabulary(state: Mapping[str, Tensor], weights: TargetWeights) -> Tensor:
    """The tokens [rows] that a drafter's head knows; Refusal where they are not tokens of this target."""
    ids = state.get("ids")
    if ids is None or ids.ndim != 1 or len(ids) < 2 or not 0 <= int(ids.min()) <= int(ids.max()) < weights.shape.vocab:
        raise Refusal(f"the checkpoint's ids do not name tokens of a vocabulary of {weights.shape.vocab}:"
                      " it was trained for another model")
    return ids.long().to(weights.device)


class PerTarget:
    """Calls `make(checkpoint, weights)` once for the same two objects, so that a new decode packs nothing again.

    The result is dropped at the first call after either of the two is gone.
    """

    def __init__(self, make: Callable[[Any, Any], Any]):
        self.make, self.made = make, {}

    def __call__(self, checkpoint: Any, weights: Any) -> Any:
        for key, (sources, _) in list(self.made.items()):
            if any(source() is None for source in sources):
                del self.made[key]
        key = id(checkpoint), id(weights)
        if key not in self.made:
            self.made[key] = (weakref.ref(checkpoint), weakref.ref(weights)), self.make(checkpoint, weights)
        return self.made[key][1]


COPIED = PerTarget(lambda weights, embedding: replace(weights, embedding=embedding.to(default_dtype("cpu"))))
