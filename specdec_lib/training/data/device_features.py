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

ROWS = 4096                                        # rows whose logits exist at the same time
TEXTS = 8192                                       # padded tokens of a forward


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
        if group not in self.tops:
            self.tops[group] = self.distributions(group, batch)
        ids, logp = self.tops[group]
        return Batch(batch.tokens, start, batch.stop, self.streams(group, batch, levels), ids.long(), logp.float())

    def streams(self, group: tuple[int, ...], batch: Batch, levels: tuple[int, ...]) -> dict[int, Tensor]:
        """The hidden states of the group, kept where there is room."""
        if not levels or (group, levels) in self.kept:
            return self.kept.get((group, levels), {})
        parts = [self.forward(group[some], batch, some, levels) for some in self.pieces(batch)]
        out = {level: torch.cat([part[level] for part in parts]) for level in levels}
        size = sum(stream.numel() * stream.element_size() for stream in out.values())
        if self.written + size <= self.limit:
            self.kept[group, levels] = out
            self.written += size
        return out

    def distributions(self, group: tuple[int, ...], batch: Batch) -> tuple[Tensor, Tensor]:
        """The top of the target's distribution after every token [B, S, TOP]; zeros before the answers."""
        count, width = batch.tokens.shape
        last, top = self.target.layers, min(TOP, self.target.vocab)
        ids = torch.zeros(count, width, top, dtype=torch.int32, device=batch.tokens.device)
        logp = torch.zeros(count, width, top, dtype=torch.float16, device=batch.tokens.device)
        place = torch.arange(width, device=batch.tokens.device)
        taught = (place < batch.stop[:, None]) & (place >= batch.start[:, None] - 1)
        for some in self.pieces(batch):
            x = self.forward(group[some], batch, some, (last,))[last]
            ids[some][taught[some]], logp[some][taught[some]] = self.best(x[taught[some]], top)
        return ids, logp

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
