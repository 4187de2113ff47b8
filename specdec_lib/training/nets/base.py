"""What all drafters in training share: the target's frozen embedding and head, and the interface for fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.heads.base import Target, every_output_row
from specdec_lib.models.llama.config import rope_table
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.data.features import text_features
from specdec_lib.training.losses.chunked_head import TOKEN, TeacherRows, certain_labels, teacher_rows


class Trainable(Protocol):
    """What a fit asks of a module: its parameters."""

    def parameters(self) -> Iterator[nn.Parameter]: ...
    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...


class TrainableDrafter(Trainable, Protocol):
    """A module that drafts: `slots` gives the normed inputs of the head [B, S, hidden], aligned on the anchor.

    Anchor t is the last known token. If the drafter is `unrolled`, entry k drafts token t + 1 + k; else the entries are
    independent drafters, each for token t + 1, and a deeper slot is the same drafter one token later.
    `depth` is how far to unroll, by default as far as in training.
    """

    unrolled: bool
    levels: tuple[int, ...]                        # layers of the target whose hidden states it reads
    frozen: Frozen

    def slots(self, batch: Batch, depth: int | None = None) -> list[Tensor]: ...
    def take(self, state: Mapping[str, Tensor]) -> None: ...
    def state(self) -> dict[str, Tensor]: ...
    def meta(self) -> dict: ...
    def to(self, device: torch.device, /) -> Self: ...


class Frozen(nn.Module):
    """The target's embedding, its rows for the restricted vocabulary `ids`, and its rotary angles. Not trained."""

    embedding: Tensor                              # buffers, like those below
    rows: Tensor
    cos: Tensor
    sin: Tensor
    columns: Tensor
    every_row: Tensor | None                       # [V, hidden], see `heads.base.every_output_row`

    def __init__(self, target: Target, ids: Tensor, longest: int = 2048):
        super().__init__()
        weights, self.shape, self.ids = target.weights, target.shape, ids
        rows = weights.head.dense()[ids].contiguous()
        columns = torch.full((self.shape.vocab,), -1)
        columns[ids] = torch.arange(len(ids))
        cos, sin = rope_table(self.shape, longest, torch.float32, target.device)
        for name, tensor in (("embedding", weights.embedding), ("rows", rows), ("cos", cos), ("sin", sin),
                             ("columns", columns.to(target.device)), ("every_row", every_output_row(weights))):
            self.register_buffer(name, tensor, persistent=False)

    def embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.embedding).float()

    def angles(self, count: int, ahead: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions ahead, ahead + 1, ..., [count, head_dim] each."""
        return self.cos[ahead:ahead + count], self.sin[ahead:ahead + count]

    def labels(self, batch: Batch, ahead: int, kind: str) -> TeacherRows:
        """What is learned `ahead` rows after each row of the batch [B * S, K]; `kind` is one of `LABELS`."""
        if kind == TOKEN:
            return certain_labels(self.columns[batch.later(batch.tokens, 1 + ahead)].flatten())
        return self.distribution(batch, ahead)

    def distribution(self, batch: Batch, ahead: int) -> TeacherRows:
        """The target's distributions `ahead` rows after each row of the batch [B * S, K]."""
        ids, logp = batch.later(batch.top_ids, ahead), batch.later(batch.top_logp, ahead)
        return teacher_rows(ids.flatten(0, 1), logp.flatten(0, 1), self.columns)


def normed(x: Tensor, norm: Tensor, eps: float) -> Tensor:
    """The hidden states normed for the head, float32."""
    return F.rms_norm(x.float(), x.shape[-1:], norm, eps)


def usual_size(target: Target, level: int) -> float:
    """The median root mean square of this layer's hidden states over a few tokens; a few huge rows dominate a mean."""
    tokens = tuple(range(min(64, target.vocab)))
    stream = text_features(target, tokens, (level,))["streams"][:, 0].float()
    return float(stream.pow(2).mean(-1).sqrt().median())
