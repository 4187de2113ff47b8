"""What H-RAD learns from: positions at which a draft waits to be verified, and how much of it the target accepts.

A schedule of SpecBranch keeps a draft pending only where its first token has just been accepted. So a position counts
if the drafter was right about the token there, given all tokens before it. The number of accepted tokens after it is
the label of a length predictor (`length_labels.py`), from the same teacher-forced pass over the target's own answer:
a drafter's greedy chain from any position, and the target's verdict on it, are the same in a decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lib.heads.hrad import CLASSES
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.data.length_labels import UNKNOWN, kept_lengths
from specdec_lib.training.eval.teacher_forced import matches
from specdec_lib.training.nets.base import TrainableDrafter

NONE, SOME, ALL = range(len(CLASSES))


@dataclass(frozen=True)
class PendingDrafts:
    """Last tokens [n], the target's `states` [n, levels, hidden] one row earlier, accepted tokens [n] of each draft."""

    tokens: Tensor
    states: Tensor
    accepted: Tensor                               # int8, at most the length of a draft

    def __len__(self) -> int:
        return len(self.tokens)


def pending_drafts(batch: Batch, drafter: TrainableDrafter, levels: Sequence[int], longest: int,
                   end: frozenset[int] = frozenset()) -> PendingDrafts:
    """The drafts of `longest` tokens that are pending somewhere in these greedy answers, and whose fate is known.

    `batch` has the hidden states of `levels` and of those that the drafter reads.
    """
    right = matches(drafter, batch, longest)[0]
    kept = kept_lengths(right, batch, end)
    own = batch.later(batch.tokens, 1) == batch.top_ids[..., 0]        # row t: token t + 1 is the greedy one
    chosen = batch.drafted(1) & (kept != UNKNOWN) & one_later(right[0] & own)
    states = torch.stack([one_later(batch.streams[level])[chosen] for level in levels], 1)
    return PendingDrafts(batch.tokens[chosen].cpu(), states.to("cpu", torch.float16),
                         kept[chosen].to("cpu", torch.int8))


def one_later(values: Tensor) -> Tensor:
    """`values` [B, S, ...] shifted so that row t holds the value at t - 1; zeros in the first row."""
    out = torch.zeros_like(values)
    out[:, 1:] = values[:, :-1]
    return out


def classes_of(accepted: Tensor, longest: int) -> Tensor:
    """The class [n] of each draft by its accepted tokens: none, some, or all `longest` of them."""
    return torch.where(accepted >= longest, ALL, torch.where(accepted > 0, SOME, NONE))


def join_drafts(parts: Sequence[PendingDrafts]) -> PendingDrafts:
    """All parts concatenated."""
    return PendingDrafts(*(torch.cat([getattr(part, name) for part in parts])
                           for name in ("tokens", "states", "accepted")))
