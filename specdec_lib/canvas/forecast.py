"""Forecast: what one batched forward says about every position, on the host; ties are broken here and nowhere else.

The best token of a position is the one with the highest probability, and of equal ones that with the lowest id. The
mask token has probability zero: a model never fills a position with a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from specdec_lib.lazy import torch
from specdec_lib.sampling import Sampling
from specdec_lib.scores import Categorical

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RowForecast:
    """One canvas of a forward: a value per position of `positions`, and log-probabilities for whoever samples."""

    positions: tuple[int, ...]                     # ascending
    best: tuple[int, ...]                          # most probable token, the lowest id of equal ones
    confidence: tuple[float, ...]                  # its probability, raw softmax at temperature 1
    margin: tuple[float, ...]                      # its probability less the second one's; 0 = an exact tie
    entropy: tuple[float, ...]                     # nats
    logp: Tensor                                   # [positions, columns], -inf for the mask
    ids: Tensor | None = None                      # [columns]: the token of each column; None = the token is the column

    @cached_property
    def column(self) -> dict[int, int]:
        """Position -> index into the values."""
        return {position: index for index, position in enumerate(self.positions)}

    def confidence_of(self, position: int, token: int) -> float:
        """The probability of `token` at `position`; 0 where the model does not know the token."""
        row = self.logp[self.column[position]]
        if self.ids is None:
            return float(row[token].exp())
        at = (self.ids == token).nonzero()
        return float(row[at[0, 0]].exp()) if len(at) else 0.0

    def distribution(self, position: int, temperature: float) -> Categorical:
        """The distribution of `position` at this temperature; a point mass on the best token at 0."""
        index = self.column[position]
        if temperature == 0:
            return Categorical.point_mass(self.best[index])
        return Sampling(temperature).distribution(self.logp[index], self.ids)

    def alternatives(self, position: int, k: int) -> tuple[int, ...]:
        """The `k` most probable tokens of `position`, the lowest id of equal ones first."""
        value, column = torch.sort(self.logp[self.column[position]], descending=True, stable=True)
        known = column[:k][value[:k] > -torch.inf]
        return tuple((known if self.ids is None else self.ids[known]).tolist())

    def damped(self, tokens: Sequence[int], amount: float) -> RowForecast:
        """The forecast with `amount` subtracted from the logits of these tokens, and renormalized."""
        if not tokens or not amount:
            return self
        some = torch.tensor(list(tokens), device=self.logp.device)
        columns = some if self.ids is None else torch.isin(self.ids, some).nonzero()[:, 0]
        logits = self.logp.clone()
        logits[:, columns] -= amount
        return forecast(logits[None], self.positions, None, self.ids)[0]


Forecast = tuple[RowForecast, ...]                 # one per canvas, in the order of the call


def forecast(logits: Tensor, positions: Sequence[int], mask: int | None, ids: Tensor | None = None) -> Forecast:
    """The forecast of raw logits [rows, positions, columns]; `ids [columns]` names tokens where columns are fewer.

    `mask` is the mask token's id, whose probability becomes zero; None where no column stands for it. `ids` ascends.
    """
    if mask is not None and (ids is not None or mask < logits.shape[-1]):
        logits = logits.clone()
        logits[..., mask if ids is None else ids == mask] = -torch.inf
    logp = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), -1)
    best = logp.argmax(-1)                         # the first of equal ones
    first, second = torch.topk(logp, 2, -1).values.exp().unbind(-1)
    entropy = torch.special.entr(logp.exp()).sum(-1)
    tokens = (best if ids is None else ids[best]).tolist()
    columns = zip(tokens, first.tolist(), (first - second).tolist(), entropy.tolist(), logp, strict=True)
    return tuple(RowForecast(tuple(positions), tuple(token), tuple(high), tuple(gap), tuple(spread), row, ids)
                 for token, high, gap, spread, row in columns)
