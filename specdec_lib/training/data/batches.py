"""Batches: examples of similar length, padded, in an order that depends on a seed alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lib.training.data.examples import Example


@dataclass(frozen=True)
class Batch:
    """B examples padded on the right to S tokens, with the results of the target's forward over them.

    Row t of `streams`, `top_ids`, `top_logp` belongs to token t: its distribution is that of token t + 1.
    """

    tokens: Tensor                                 # [B, S] int64
    start: Tensor                                  # [B] length of the prompt: the first token that may be drafted
    stop: Tensor                                   # [B] length of the example
    streams: dict[int, Tensor]                     # level -> hidden states [B, S, hidden], requested levels only
    top_ids: Tensor                                # [B, S, K] the target's most likely tokens, best first
    top_logp: Tensor                               # [B, S, K] their log-probabilities over the whole vocabulary
    seed: int = 0                                  # for the random draws of a loss in this step
    step: int = 0                                  # number of the step in the fit, for schedules

    def to(self, device) -> Batch:
        return Batch(self.tokens.to(device), self.start.to(device), self.stop.to(device),
                     {level: stream.to(device) for level, stream in self.streams.items()},
                     self.top_ids.to(device), self.top_logp.to(device), self.seed, self.step)

    def drafted(self, ahead: int) -> Tensor:
        """[B, S]: whether the token `ahead` positions after t belongs to the answer, so that it may be drafted."""
        place = torch.arange(self.tokens.shape[1], device=self.tokens.device) + ahead
        return (place >= self.start[:, None]) & (place < self.stop[:, None])

    def later(self, values: Tensor, ahead: int) -> Tensor:
        """`values` [B, S, ...] shifted so that row t holds the value at t + ahead; zeros behind the end."""
        out = torch.zeros_like(values)
        if ahead < values.shape[1]:
            out[:, :values.shape[1] - ahead] = values[:, ahead:]
        return out


def grouped(data: Sequence[Example], tokens: int) -> list[tuple[int, ...]]:
    """Indices of examples by batch: similar lengths, at most `tokens` padded tokens; the last batch may be smaller.

    An example longer than this is a batch of its own.
    """
    order = sorted(range(len(data)), key=lambda i: (len(data[i]), i))
    out: list[tuple[int, ...]] = []
    group: list[int] = []
    for i in order:
        if group and (len(group) + 1) * len(data[i]) > tokens:
            out.append(tuple(group))
            group = []
        group.append(i)
    return out + [tuple(group)] if group else out


def order(count: int, epoch: int, seed: int) -> list[int]:
    """The random order in which an epoch takes the batches."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(place_seed(seed, epoch))).tolist()


def place_seed(seed: int, place: int) -> int:
    """The seed of one epoch or step; torch takes 64 bits, so what is longer is hashed."""
    mixed = seed * 1_000_003 + place
    if -2 ** 63 <= mixed < 2 ** 64:
        return mixed
    return int.from_bytes(hashlib.blake2b(str(mixed).encode(), digest_size=7).digest())


def padded(rows: Sequence[Tensor]) -> Tensor:
    """Rows of unequal length as one tensor [B, S, ...], zeros on the right."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
