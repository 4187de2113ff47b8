"""Scores of recorded rows: of each the likeliest tokens are known, and every other token has a logit of -inf."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from specdec_lib.scores import ListedRowStats, RowStats, Scores


class RecordedScores(Scores):
    """Rows of a recording; their statistics answer most questions, and all logits are made when they are asked for.

    A row of -1 lies off the recorded path: its token is -1 and all its logits are -inf.
    """

    def __init__(self, known: RowStats, vocab: int, rows: Sequence[int]):
        self.known, self.vocab, self.rows, self.ids = known, vocab, list(rows), None
        self._row_stats = picked(known, rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> int:
        return self.vocab

    @cached_property
    def given(self) -> Tensor:
        logits, index = torch.full((len(self.rows), self.vocab), float("-inf")), torch.tensor(self.rows)
        on_path = index >= 0
        at = index[on_path]
        logits[on_path] = logits[on_path].scatter(1, self.known.ids[at], self.known.logits[at])
        return logits

    def logit(self, row: int, token: int) -> float:
        ids, logits = self._row_stats.tops
        return logits[row][ids[row].index(token)] if token in ids[row] else float("-inf")


def picked(known: RowStats, rows: Sequence[int]) -> ListedRowStats:
    """The statistics of these rows; a row of -1 has the token -1 alone, and sums of 0."""
    ids, logits = known.tops
    lse, entropy = (tuple(values[row] if row >= 0 else 0.0 for row in rows) for values in (known.lse, known.entropy))
    tops = [ids[row] if row >= 0 else [-1] * known.kept for row in rows], [logits[row] for row in rows]
    return ListedRowStats(tops, known.logits.dtype, tuple(range(len(rows))), lse, entropy)
