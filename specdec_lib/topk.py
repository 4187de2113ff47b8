"""The largest entries of rows as long as a vocabulary, by first ranking blocks of columns. Depends on tensors only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec_lib.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


BLOCK = 128


def block_maxima(logits: Tensor) -> Tensor | None:
    """The largest entry of every block [n, V / 128]; None if V is no multiple of 128. Input of `top_k` and `argmax`."""
    return None if logits.shape[1] % BLOCK else logits.unflatten(-1, (-1, BLOCK)).amax(-1)


def top_k(logits: Tensor, k: int, peak: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Exact top k (values, columns) of each row [n, V], `argmax` first: ten times faster than topk over V on a CPU.

    The k best entries lie in the k blocks with the largest maxima, so only those are searched.
    """
    if logits.shape[1] % BLOCK or logits.shape[1] < 2 * k * BLOCK:
        value, column = torch.topk(logits, min(k, logits.shape[1]), dim=-1)
        return value, best_first(column, argmax(logits, peak))
    blocks = logits.unflatten(-1, (-1, BLOCK))
    peak = block_maxima(logits) if peak is None else peak
    assert peak is not None                        # V is a multiple of the block
    best = torch.topk(peak, k, dim=-1).indices     # [n, k] blocks
    some = torch.gather(blocks, 1, best[..., None].expand(-1, -1, BLOCK)).flatten(1)
    value, column = torch.topk(some, k, dim=-1)
    return value, best_first(torch.gather(best, 1, column // BLOCK) * BLOCK + column % BLOCK, argmax(logits, peak))


def best_first(column: Tensor, best: Tensor) -> Tensor:
    """The columns [n, k] of a top k with `best` [n] in front: of equal entries `topk` puts any first."""
    return torch.cat((best[:, None], torch.where(column == best[:, None], column[:, :1], column)[:, 1:]), 1)


def argmax(logits: Tensor, peak: Tensor | None = None) -> Tensor:
    """The column of each row's largest logit [n], the first of equals: six times faster than argmax over V on a CPU."""
    if logits.shape[1] % BLOCK or logits.is_cuda:
        return logits.argmax(-1)
    peak = block_maxima(logits) if peak is None else peak
    assert peak is not None                        # V is a multiple of the block
    first = peak.argmax(-1)
    blocks = logits.unflatten(-1, (-1, BLOCK))
    return first * BLOCK + blocks[torch.arange(len(blocks)), first].argmax(-1)
