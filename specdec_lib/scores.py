"""What one forward of a model gives: distributions over tokens, raw logits and their statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from specdec_lib.lazy import torch
from specdec_lib.topk import argmax, block_maxima, top_k

if TYPE_CHECKING:
    from torch import Tensor


Tops = tuple[list[list[int]], list[list[float]]]   # of every row: the likeliest tokens, and their logits
SMALL = 64                                         # tokens of a support that is kept as a dictionary as well
KEPT = 8                                           # of the tokens of a row, the likeliest that statistics hold


class RandomNumbers(Protocol):
    """What parts ask of random numbers: `dice.Dice`, `NoDice`, or `exact.EveryDice`, which enumerates all outcomes."""

    def at(self, position: int) -> RandomNumbers: ...
    def fork(self, *key: Any) -> RandomNumbers: ...
    def aside(self) -> RandomNumbers: ...
    def flip(self, prob: float) -> bool: ...
    def choose(self, dist: Categorical) -> int: ...


class Distribution(Protocol):
    """What verification asks of a distribution, over tokens or, as a density, over continuous values."""

    def probability(self, token: Any) -> float:
        """The probability, or density, of this value."""
        ...

    def draw(self, dice: RandomNumbers) -> Any:
        """A value drawn with these random numbers."""
        ...

    def residual(self, q: Any, token: Any) -> Distribution:
        """What is drawn from after `token`, drawn from `q`, was rejected: norm(max(0, self - q)) (Leviathan 2023)."""
        ...


@dataclass(frozen=True)
class Categorical:
    """A categorical distribution on its support: `ids [m]` int64, `probs [m]` summing to one; m = 1 is a point mass."""

    ids: Tensor
    probs: Tensor

    @staticmethod
    @lru_cache(4096)                               # the same few thousand tokens again and again: tensors cost 20 us
    def point_mass(token: int) -> Categorical:
        return Categorical(torch.tensor([token]), torch.ones(1, dtype=torch.float64))

    @cached_property
    def only(self) -> int | None:
        """The token of a point mass; None where several tokens are possible."""
        return int(self.ids[0]) if len(self.ids) == 1 else None

    @cached_property
    def listed(self) -> dict[int, float] | None:
        """Token -> probability, where the support is small and on the host: faster than the tensors."""
        here = len(self.ids) <= SMALL and self.ids.device.type == "cpu"
        return dict(zip(self.ids.tolist(), self.probs.tolist(), strict=True)) if here else None

    def probability(self, token: int) -> float:
        """The probability of `token`; zero outside the support."""
        if self.only is not None:
            return 1.0 if self.only == token else 0.0
        return float(self.probs[self.ids == token].sum()) if self.listed is None else self.listed.get(token, 0.0)

    def draw(self, dice: RandomNumbers) -> int:
        """A token drawn with these random numbers; a point mass uses none."""
        return dice.choose(self)

    def residual(self, q: Categorical | None, token: int) -> Categorical:
        """norm(max(0, self - q)) on this support; `q` None is a deterministic proposal: this one without `token`."""
        if len(self.ids) == 1:
            return self                            # the rejected token was another one: nothing to take away
        left = self.probs.clone()
        if q is None:
            left[self.ids == token] = 0
        else:
            left = (left - q.onto(self.ids).to(left)).clamp(min=0)
        total = left.sum()
        return Categorical(self.ids, left / total) if total > 0 else self      # p = q but for rounding

    def onto(self, ids: Tensor) -> Tensor:
        """The probabilities of these ids [m], on the device of this distribution; zero outside the support."""
        ids = ids.to(self.ids.device)              # a model on the host may draft for one on a GPU
        if len(self.ids) == len(ids) and torch.equal(self.ids, ids):
            return self.probs
        order = torch.argsort(self.ids)
        known = self.ids[order]
        place = torch.searchsorted(known, ids).clamp(max=len(known) - 1)
        return torch.where(known[place] == ids, self.probs[order][place], torch.zeros_like(self.probs[:1]))


class NoDice:
    """Greedy decoding needs no dice: certain laws are read off, and a real coin is refused."""

    def at(self, position: int) -> NoDice:
        return self

    def aside(self) -> NoDice:
        return self

    def fork(self, *key) -> NoDice:
        return self

    def choose(self, dist: Categorical) -> int:
        if dist.only is None:
            raise ValueError("sampling needs dice: pass dice=Dice(seed)")
        return dist.only

    def flip(self, prob: float) -> bool:
        if 0 < prob < 1:
            raise ValueError("sampling needs dice: pass dice=Dice(seed)")
        return prob >= 1


NO_DICE = NoDice()


class TokenStats(NamedTuple):
    """The row that one token was drawn from, as floats of the raw softmax at temperature 1 (entropy in nats)."""

    prob: float                                    # of the token itself; eagle2's trees keep their sharpened score here
    first: float                                   # the two largest probabilities of the row
    second: float
    entropy: float


@dataclass(frozen=True)
class RowStats:
    """The statistics that are kept of scores: top ids and raw logits of every row, log-sum-exp and entropy of `rows`.

    `ids`, `logits` are [rows of the forward, k]; `lse`, `entropy` are floats (nats, raw softmax, temperature 1), one
    for each row named in `rows`.
    """

    ids: Tensor
    logits: Tensor
    rows: tuple[int, ...] = ()
    lse: tuple[float, ...] = ()
    entropy: tuple[float, ...] = ()

    @cached_property
    def tops(self) -> Tops:
        """`ids` and `logits` as lists, from which single numbers are read faster than from tensors."""
        return self.ids.tolist(), self.logits.tolist()

    @property
    def kept(self) -> int:
        """How many tokens of each row are kept."""
        return self.ids.shape[1]

    def about(self, rows: tuple[int, ...], k: int) -> RowStats:
        """The first k tokens of every row, and log-sum-exp and entropy of these rows alone."""
        lse, entropy = self.sums(rows)
        return RowStats(self.ids[:, :k], self.logits[:, :k], rows, lse, entropy)

    def sums(self, rows: tuple[int, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Log-sum-exp and entropy of these rows."""
        picked = [self.rows.index(row) for row in rows]
        return tuple(self.lse[i] for i in picked), tuple(self.entropy[i] for i in picked)


class ListedRowStats(RowStats):
    """The same from lists, which a round reads alone: tensors are made when they are first asked for."""

    dtype: Any                                     # of the logits

    def __init__(self, tops: Tops, dtype: Any, rows: tuple[int, ...], lse: tuple[float, ...],
                 entropy: tuple[float, ...]):
        vars(self).update(tops=tops, dtype=dtype, rows=rows, lse=lse, entropy=entropy)      # the dataclass is frozen

    @cached_property
    def ids(self) -> Tensor:
        return torch.tensor(self.tops[0], dtype=torch.int64)

    @cached_property
    def logits(self) -> Tensor:
        return torch.tensor(self.tops[1], dtype=self.dtype)

    @property
    def kept(self) -> int:
        return len(self.tops[0][0])

    def about(self, rows: tuple[int, ...], k: int) -> RowStats:
        ids, logits = self.tops
        if k < self.kept:
            ids, logits = [row[:k] for row in ids], [row[:k] for row in logits]
        return ListedRowStats((ids, logits), self.dtype, rows, *self.sums(rows))

    def part(self, rows: slice) -> ListedRowStats:
        """The statistics of these rows, which are counted from 0 again."""
        ids, logits = self.tops
        count = len(ids[rows])
        return ListedRowStats((ids[rows], logits[rows]), self.dtype, tuple(range(count)), self.lse[rows],
                              self.entropy[rows])

    def followed(self, by: ListedRowStats) -> ListedRowStats:
        """The rows of both, one after the other."""
        (ids, logits), (more_ids, more_logits) = self.tops, by.tops
        return ListedRowStats((ids + more_ids, logits + more_logits), self.dtype,
                              tuple(range(len(ids) + len(more_ids))), self.lse + by.lse, self.entropy + by.entropy)


class Scores:
    """Raw logits [1 + n, V] of one forward: row 0 after the context, row i + 1 after node i.

    `ids [V]` names the token of each column where the head has fewer rows than the vocabulary. `best` and the top
    ids of `brief` may be handed in by a model that has already moved them to the host (one transfer a round). Logits in
    half precision are kept as they were `given` and widened when they are first asked for: statistics answer most
    questions.
    """

    def __init__(self, logits: Tensor, ids: Tensor | None = None, row_stats: RowStats | None = None):
        self.given, self.ids, self._row_stats = logits, ids, row_stats

    def __len__(self) -> int:
        return len(self.given)

    @property
    def columns(self) -> int:
        """How many tokens have a logit."""
        return self.given.shape[1]

    @cached_property
    def logits(self) -> Tensor:
        """All rows, in single precision at least."""
        return self.given.to(torch.promote_types(self.given.dtype, torch.float32))

    @cached_property
    def peaks(self) -> Tensor | None:
        return block_maxima(self.logits)

    @cached_property
    def best(self) -> tuple[int, ...]:
        """The most likely token of each row."""
        if self._row_stats is not None:
            return tuple(ids[0] for ids in self._row_stats.tops[0])
        column = argmax(self.logits, self.peaks)
        return tuple((column if self.ids is None else self.ids[column]).tolist())

    def distribution(self, row: int, sampling=None) -> Categorical:
        """The distribution of the token after `row`; a point mass where `sampling` is None or at temperature 0."""
        if sampling is None or sampling.greedy:
            return Categorical.point_mass(self.best[row])
        return sampling.distribution(self.logits[row], self.ids)

    def logit(self, row: int, token: int) -> float:
        """The raw logit of one token, read from what already lies on the host where that is possible."""
        if self._row_stats is not None and (self.ids is not None or self.given.device.type != "cpu"):
            ids, logits = self._row_stats.tops
            if token in ids[row]:
                return logits[row][ids[row].index(token)]
        column = token if self.ids is None else int((self.ids == token).nonzero()[0, 0])
        return float(self.given[row, column])

    def stats(self, row: int, token: int) -> TokenStats:
        """Probability of `token`, the two largest probabilities and the entropy (nats) of `row`, raw softmax.

        Read from the row statistics where the model has already moved them to the host, so that it costs no transfer.
        """
        if self._row_stats is not None and row in self._row_stats.rows:
            moved = self._row_stats
            at = moved.rows.index(row)
            first, second = (math.exp(logit - moved.lse[at]) for logit in moved.tops[1][row][:2])
            return TokenStats(math.exp(self.logit(row, token) - moved.lse[at]), first, second, moved.entropy[at])
        logits = self.logits[row]
        probs = torch.softmax(logits if logits.dtype == torch.float64 else logits.float(), -1)
        first, second = torch.topk(probs, 2).values.tolist()
        column = token if self.ids is None else int((self.ids == token).nonzero()[0, 0])
        return TokenStats(float(probs[column]), first, second, float(torch.special.entr(probs).sum()))

    def row_stats(self, rows: tuple[int, ...] = (), k: int = KEPT) -> RowStats:
        """Top k of every row, and log-sum-exp and entropy of `rows`."""
        have = self._row_stats
        if have is not None and have.kept >= k:
            return have if rows == have.rows and k == have.kept else have.about(rows, k)
        value, column = top_k(self.logits, k, self.peaks)
        ids = column if self.ids is None else self.ids[column]
        if have is not None and set(rows) <= set(have.rows):     # only more of the best tokens are asked for
            at = [have.rows.index(row) for row in rows]
            return RowStats(ids, value, rows, *(tuple(known[i] for i in at) for known in (have.lse, have.entropy)))
        chain = rows == tuple(range(len(rows)))    # a slice is a view, an index a copy
        picked = self.logits[:len(rows)] if chain else self.logits[list(rows)]
        picked = picked.to(torch.promote_types(picked.dtype, torch.float32))
        largest = picked.amax(-1, keepdim=True)
        weight = (picked - largest).exp_()         # in place, and one for both: more buffers over V cost more than exp
        lse = largest[:, 0] + weight.sum(-1).log()
        entropy = lse - torch.linalg.vecdot(weight, picked) / weight.sum(-1)
        return RowStats(ids, value, rows, tuple(lse.tolist()), tuple(entropy.clamp(min=0).tolist()))
