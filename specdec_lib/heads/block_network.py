"""What a block drafter computes: the keys and values of committed tokens, and the slots of a block; packed once.

`BlockHead` (`block_diffusion.py`) caches the rows, and `captured_block.py` holds both in one graph. Sources: see there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.heads.base import TargetWeights, checked_tensors, draft_vocabulary, every_output_row
from specdec_lib.heads.block_walk import Slots
from specdec_lib.heads.draft_vocabulary import TextRows, text_rows
from specdec_lib.heads.drafter_linear import drafter_layer, drafter_linear, output_rows
from specdec_lib.models.llama.compiled_linear import normed
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.forward import Columns, LayerView, attended, decoder_layer, layer_after, scaled
from specdec_lib.models.llama.weights import MATRICES, LayerWeights, Linear, code_of


@dataclass(frozen=True)
class BlockWeights:
    """The tensors of a block drafter, packed for one target."""

    fc: Linear                                     # concatenated taps -> a token's feature [hidden]
    first: LayerWeights                            # its qkv reads a token and a feature, concatenated
    inject_first: Linear                           # the same pair -> its keys and values
    inject: Linear                                 # feature -> keys and values of every other layer, layer after layer
    layers: tuple[LayerWeights, ...]               # the other layers
    norm: Tensor                                   # [hidden], before the head
    head: Linear                                   # the target's output rows of `ids`
    rows: Tensor                                   # the same [rows, hidden] unpacked, for candidates
    text: TextRows | None                          # the output rows of all tokens, where they lie open
    masks: Tensor                                  # [slots - 1, hidden] stand in for unknown tokens, slot by slot
    correction: Linear                             # the token before -> what it adds to a slot's hidden state
    confidence: Tensor                             # [2 hidden] reads a slot's hidden state and the token before
    ids: Tensor                                    # [rows] the draft vocabulary
    embedding: Tensor                              # [V, hidden] the target's
    shape: LlamaConfig                             # the target's
    free: list[Any] = field(init=False, default_factory=list, repr=False, compare=False)     # see `captured_block.py`

    @staticmethod
    def pack(state: Mapping[str, Tensor], taps: int, target: TargetWeights) -> BlockWeights:
        """From a checkpoint's tensors, for `taps` tapped layers. Refusal where they do not fit the target."""
        shape, h = target.shape, target.shape.hidden
        queries, keys = shape.heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
        sizes = {"qkv": (queries + keys, h), "out": (h, queries), "gate_up": (-1, h), "down": (h, -1)}
        put = checked_tensors(state, {**sizes, "qkv": (queries + keys, 2 * h), "fc": (h, taps * h), "norm": (h,),
                                      "mask": (-1, h), "correction": (h, h), "confidence": (2 * h,)}, target)
        others = [gated_layer(state, i, sizes, target) for i in range(sum("down" in name for name in state) - 1)]
        ids = draft_vocabulary(state, target)
        head = output_rows(target, ids)
        inject = torch.cat([layer["qkv"][queries:] for layer in others])
        return BlockWeights(drafter_linear(put["fc"], target), drafter_layer(put, "", target),
                            drafter_linear(put["qkv"][queries:], target), drafter_linear(inject, target),
                            tuple(drafter_layer(layer, "", target) for layer in others), put["norm"],
                            head, head.dense().contiguous(), text_rows(state["ids"], every_output_row(target)),
                            put["mask"].to(target.embedding.dtype), drafter_linear(put["correction"], target),
                            put["confidence"], ids, target.embedding, shape)

    def feature(self, taps: Tensor) -> Tensor:
        """The features [rows, hidden] of tokens from the target's hidden states [rows, taps, hidden]."""
        states = taps.reshape(-1, self.shape.hidden)
        return self.fc(scaled(states, self.shape.eps, code_of(self.fc)).view(len(taps), -1))

    def joined(self, words: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        """What layers read of rows with these embedded tokens and features: the features normed, and both joined."""
        count, hidden = feature.shape
        pair = scaled(torch.cat((words, feature), -1).view(2 * count, hidden), self.shape.eps, code_of(self.fc))
        return pair[1::2].contiguous(), pair.view(count, 2 * hidden)

    def injected(self, tokens: Tensor, feature: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Keys, turned by the angles [rows, head_dim], and values [layers, kv_heads, rows, head_dim] of these rows."""
        shape, count = self.shape, len(feature)
        alone, pair = self.joined(F.embedding(tokens, self.embedding), feature)
        kv = torch.cat((self.inject_first(pair), self.inject(alone)), -1)
        kv = kv.view(count, 1 + len(self.layers), 2, shape.kv_heads, shape.head_dim).permute(1, 2, 3, 0, 4)
        keys = kv[:, 0]
        return keys * cos + keys.roll(shape.head_dim // 2, -1) * sin, kv[:, 1]

    def filled(self, feature: Tensor, words: Tensor, kv: Iterable[Columns], view: LayerView) -> Tensor:
        """Normed hidden states [block, hidden] of slots that read `words` and the feature [1, hidden] before them."""
        first, *others = kv
        x = feature.repeat(len(words), 1)
        pair = self.joined(words, x)[1]
        x = layer_after(x, self.first.qkv(pair), self.first, self.shape, partial(attended, kv=first, view=view))
        for layer, own in zip(self.layers, others, strict=True):
            x = decoder_layer(x, layer, self.shape, own, view)
        return normed(code_of(self.head), x, self.norm, self.shape.eps)

    def output_rows(self, slots: Slots) -> Tensor:
        """The output rows [slots, k, hidden] of the candidates."""
        return self.rows[slots.columns] if self.text is None else self.text.every[slots.lattice.ids]

    def word(self, tokens: Tensor) -> Tensor:
        """The normed embeddings [n, hidden] of these tokens."""
        return scaled(F.embedding(tokens, self.embedding), self.shape.eps, code_of(self.head))


def gated_layer(state: Mapping[str, Tensor], i: int, sizes: Mapping[str, tuple[int, ...]], target: TargetWeights
                ) -> dict[str, Tensor]:
    """The matrices of the i-th layer behind the first, `out` and `down` multiplied by their gates; as stored else."""
    h = target.shape.hidden
    layer = checked_tensors(state, {f"layers.{i}.{name}": size for name, size in sizes.items()}, target)
    gates = checked_tensors(state, {f"gates.{i}.attention": (h,), f"gates.{i}.mlp": (h,)}, target)
    made = {name: layer[f"layers.{i}.{name}"] for name in MATRICES}
    for name, gate in (("out", "attention"), ("down", "mlp")):
        made[name] = gates[f"gates.{i}.{gate}"].double()[:, None] * made[name].double()
    return made
