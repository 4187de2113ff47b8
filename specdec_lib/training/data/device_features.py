"""The target's features on a GPU: one forward for a whole group, kept in the device's own memory up to a limit.

There a forward of thousands of tokens takes less time than to read its result from disk. Beyond the limit hidden states
are computed again at each use; the distributions, which are small and need the whole head, are always kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lib.models.llama.batched import BatchedLlama
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.topk import top_k
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.data.examples import Example
from specdec_lib.training.data.features import TOP

ROWS = 16384                                       # rows whose logits exist at the same time
TEXTS = 65536                                      # padded tokens of a forward: small ones wait for the host


class DeviceFeatures:
    """`Features` of a Llama on its device; call it with a group of indices. `limit` is in bytes of hidden states."""

    def __init__(self, target: Transformer, data: Sequence[Example], limit: float = 8e9):
        self.target, self.data, self.limit = target, data, limit
        self.rows = BatchedLlama(target.weights)
        self.tops: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        self.kept: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[int, Tensor]] = {}
        self.written = self.computed = 0           # bytes kept, tokens that went through the target

    def __call__(self, group: Sequence[int], levels: Sequence[int] = ()) -> Batch:
        """The batch of these examples on the device, with the hidden states of `levels` alone."""
        group, levels = tuple(group), tuple(levels)
        examples, device = [self.data[i] for i in group], self.target.device
        sizes = torch.tensor([len(example) for example in examples])
        tokens = torch.zeros(len(group), int(sizes.max()), dtype=torch.long)
        for row, example in enumerate(examples):
            tokens[row, :len(example)] = torch.tensor(example.tokens)
        start = torch.tensor([len(example.prompt) for example in examples]).to(device)
        batch = Batch(tokens.to(device), start, sizes.to(device), {}, tokens, tokens)
        streams = self.kept.get((group, levels), {})
        if group not in self.tops or len(streams) < len(levels):
            streams = self.compute(group, batch, levels)
        ids, logp = self.tops[group]
        return Batch(batch.tokens, start, batch.stop, streams, ids.long(), logp.float())

    def compute(self, group: tuple[int, ...], batch: Batch, levels: tuple[int, ...]) -> dict[int, Tensor]:
        """The hidden states of the group, kept where there is room; the first time its distributions as well."""
        last, fresh = self.target.layers, group not in self.tops
        ids, logp, taught = self.untold(batch)
        parts = []
        for some in self.pieces(batch):
            found = self.forward(group[some], batch, some, tuple({*levels, last}) if fresh else levels)
            parts.append([found[level] for level in levels])
            if fresh:
                rows = found[last][taught[some]]
                ids[some][taught[some]], logp[some][taught[some]] = self.best(rows, ids.shape[-1])
        if fresh:
            self.tops[group] = ids, logp
        out = dict(zip(levels, map(torch.cat, zip(*parts, strict=True)), strict=True))
        size = sum(stream.numel() * stream.element_size() for stream in out.values())
        if self.written + size <= self.limit and (group, levels) not in self.kept:
            self.kept[group, levels] = out
            self.written += size
        return out

    def untold(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Tables [B, S, TOP] of zeros for tokens and log-probabilities, and where they are filled: in the answers."""
        (count, width), device = batch.tokens.shape, batch.tokens.device
        top, place = min(TOP, self.target.vocab), torch.arange(width, device=device)
        taught = (place < batch.stop[:, None]) & (place >= batch.start[:, None] - 1)
        return (torch.zeros(count, width, top, dtype=torch.int32, device=device),
                torch.zeros(count, width, top, dtype=torch.float16, device=device), taught)

    def pieces(self, batch: Batch) -> list[slice]:
        """The texts that go through the target together."""
        count, width = batch.tokens.shape
        step = max(1, TEXTS // width)
        return [slice(at, at + step) for at in range(0, count, step)]

    @torch.no_grad()
    def forward(self, group: tuple[int, ...], batch: Batch, some: slice,
                levels: tuple[int, ...]) -> dict[int, Tensor]:
        """The hidden states [b, S, hidden] of these texts, zeros behind their ends; the last ones are normed."""
        texts, width = [self.data[i].tokens for i in group], batch.tokens.shape[1]
        real = (torch.arange(width, device=batch.tokens.device) < batch.stop[some][:, None])[..., None]
        self.computed += sum(map(len, texts))
        texts[0] = (*texts[0], *(0,) * (width - len(texts[0])))                  # all are padded to the group's width
        out = {}
        for level, x, _ in self.rows.through(texts, max(levels)):
            if level in levels:
                x = self.target.normed(x) if level == self.target.layers else x
                out[level] = x.view(len(texts), width, -1) * real
        return out

    @torch.no_grad()
    def best(self, x: Tensor, top: int) -> tuple[Tensor, Tensor]:
        """The most likely tokens [n, top] after rows of normed hidden states, and their log-probabilities."""
        ids, logp = [], []
        for rows in x.split(ROWS):
            logits = self.target.weights.head(rows.contiguous())
            value, column = top_k(logits, top)
            ids.append(column.int())
            logp.append((value.float() - torch.logsumexp(logits.float(), -1, keepdim=True)).half())
        return torch.cat(ids), torch.cat(logp)
