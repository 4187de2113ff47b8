"""What the rows of an EAGLE head compute: its layer and its output rows, packed once for a target.

Source: Li et al. 2025 (EAGLE-3). `EagleHead` caches the rows; the networks of published heads stand in
`public_eagle.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.base import (
    PerTarget,
    TargetWeights,
    checked_tensors,
    draft_vocabulary,
    every_output_row,
)
from specdec_lib.heads.draft_vocabulary import TextRows, text_rows
from specdec_lib.heads.drafter_linear import drafter_layer, drafter_linear, output_rows
from specdec_lib.models.llama.compiled_linear import normed
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.forward import Attend, layer_after, scaled
from specdec_lib.models.llama.weights import LayerWeights, Linear, code_of


class EagleNetwork(Protocol):
    """What the rows of a head compute; `EagleHead` caches them. `shape` is that of the head's one layer."""

    @property
    def shape(self) -> LlamaConfig: ...

    @property
    def embedding(self) -> Tensor: ...             # [V, hidden]

    @property
    def ids(self) -> Tensor: ...                   # [rows] the tokens that it was trained to draft

    @property
    def text(self) -> TextRows | None: ...         # None: it drafts no other tokens

    @property
    def free(self) -> list[Any]: ...               # see `captured_memory.py`

    def feature(self, taps: Tensor) -> Tensor:
        """The features [rows, hidden] of committed tokens from the target's hidden states [rows, taps, hidden]."""
        ...

    def output(self, g: Tensor, tokens: Tensor, attend: Attend) -> Tensor:
        """The outputs [rows, hidden] of rows with these features g and tokens; a child's row takes one as its g."""
        ...

    @property
    def head(self) -> Callable[[Tensor], Tensor]: ...      # what `readout` gives -> logits [rows, len(ids)]

    def readout(self, x: Tensor) -> Tensor:
        """What output rows read of these outputs."""
        ...


@dataclass(frozen=True)
class EagleWeights:
    """The tensors of a head of ours, packed for one target."""

    fc: Linear                                     # concatenated taps -> hidden
    layer: LayerWeights                            # its qkv reads embedding and feature, concatenated
    norm: Tensor                                   # [hidden], before the head
    head: Linear                                   # the target's output rows of `ids`
    ids: Tensor                                    # [rows] the draft vocabulary
    shape: LlamaConfig                             # the target's, and so is the embedding [V, hidden]
    embedding: Tensor
    text: TextRows | None = None
    free: list[Any] = field(init=False, default_factory=list, repr=False, compare=False)

    @staticmethod
    def pack(state: Mapping[str, Tensor], taps: int, target: TargetWeights) -> EagleWeights:
        """From a checkpoint's tensors, for `taps` tapped layers. Refusal where they do not fit the target."""
        shape, h = target.shape, target.shape.hidden
        heads = shape.heads * shape.head_dim
        names = {"fc": (h, taps * h), "qkv": (heads + 2 * shape.kv_heads * shape.head_dim, 2 * h), "out": (h, heads),
                 "gate_up": (-1, h), "down": (h, -1), "norm": (h,)}
        put = checked_tensors(state, names, target)
        ids = draft_vocabulary(state, target)
        return EagleWeights(drafter_linear(put["fc"], target), drafter_layer(put, "", target), put["norm"],
                            output_rows(target, ids), ids, shape, target.embedding,
                            text_rows(state["ids"], every_output_row(target)))

    def feature(self, taps: Tensor) -> Tensor:
        states = taps.reshape(-1, self.shape.hidden)
        return self.fc(scaled(states, self.shape.eps, code_of(self.fc)).view(len(taps), -1))

    def output(self, g: Tensor, tokens: Tensor, attend: Attend) -> Tensor:
        both = torch.cat((F.embedding(tokens, self.embedding), g), -1).view(2 * len(g), -1)      # one norm for both
        pair = scaled(both, self.shape.eps, code_of(self.layer.qkv)).view(len(g), -1)
        return layer_after(g, self.layer.qkv(pair), self.layer, self.shape, attend)

    def readout(self, x: Tensor) -> Tensor:
        return normed(code_of(self.head), x, self.norm, self.shape.eps)


def network_of(checkpoint, target: TargetWeights) -> EagleNetwork:
    """What a head computes: a published one packs itself, a checkpoint of ours is packed here."""
    published = getattr(checkpoint, "network", None)
    return EagleWeights.pack(checkpoint.state, len(checkpoint.meta["taps"]), target) if published is None else (
        published(target))


PACKED = PerTarget(network_of)

