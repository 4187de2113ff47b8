"""Guesses beside their predicted probabilities: how many are right, and whether the counts tell the two apart.

Intervals are Wilson's, for independent guesses; those within one answer are not, so true intervals are wider.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import sqrt
from operator import mul
from typing import NamedTuple

from specdec_lib.analysis.shares import Share, difference
from specdec_lib.analysis.wording import verdict
from specdec_lib.index.sequences import common_prefix


class Guesses(NamedTuple):
    """So many guesses, how many of them were right, and the mean probability that was predicted for them."""

    count: int
    right: int
    predicted: float | None = None

    @property
    def share(self) -> float | None:
        """The share that was right; None of no guesses."""
        return self.right / self.count if self.count else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of that share (Wilson 1927); 0 to 1 of no guesses."""
        return Share(self.right, self.count).interval

    @property
    def row(self) -> dict[str, object]:
        """The counts as a row of a table, with the word that the interval supports on the prediction."""
        low, high = self.interval
        return {"guesses": self.count, "predicted, mean": self.predicted, "right": self.share,
                "95 % interval": f"{low:.2f} to {high:.2f}", "the prediction is": self.said}

    @property
    def said(self) -> str:
        """Whether the prediction is too low or too high for the interval of the share, or not told apart from it."""
        return "not known" if self.predicted is None or not self.count else verdict(
            self.interval, "too low", "too high", line=self.predicted)


def guesses_of(pairs: Iterable[tuple[float, bool]]) -> Guesses:
    """The counts of these pairs, each a predicted probability and whether the guess was right."""
    some = list(pairs)
    return Guesses(len(some), sum(right for _, right in some),
                   sum(prob for prob, _ in some) / len(some) if some else None)


def quarters(pairs: Iterable[tuple[float, bool]]) -> list[Guesses]:
    """The counts of four equal parts of these pairs, the least probable first, equally probable ones as given."""
    some = sorted(pairs, key=lambda pair: pair[0])         # by the probability alone: outcomes must not order ties
    return [guesses_of(some[len(some) * n // 4:len(some) * (n + 1) // 4]) for n in range(4)]


def guesses_by_slot(drafts: Iterable[tuple[tuple[int, ...], Sequence[float], tuple[int, ...]]], slots: int
                    ) -> list[Guesses]:
    """By slot, the guesses of the drafts that were right so far; a draft is its tokens, confidences and what came."""
    some = [(common_prefix(tokens, came), confidence, came) for tokens, confidence, came in drafts]
    return [guesses_of((confidence[k], right > k) for right, confidence, came in some
                       if right >= k and len(confidence) > k and len(came) > k) for k in range(slots)]


def guesses_by_depth(rates: Sequence[float | None], rounds: int) -> list[Guesses]:
    """The guesses at each depth behind the acceptance rates of so many rounds; none below an unknown rate."""
    found, reached = [], rounds
    for rate in rates:
        right = round(reached * (rate or 0.0))
        found.append(Guesses(reached, right))
        reached = right
    return found


def slot_title(found: Sequence[Guesses], slots: int = 2) -> str:
    """The first slots in words: how often each is right, at which mean confidence, and what the counts say of it."""
    return "; ".join(f"slot {k + 1}: {one.share:.0%} right at confidence {one.predicted:.0%}, {one.said}"
                     for k, one in enumerate(found[:slots]) if one.share is not None and one.predicted is not None)


def told_apart(one: Guesses, other: Guesses) -> bool:
    """Whether the shares of two kinds of guesses differ by more than the 95 % interval of their difference."""
    _, low, high = difference(Share(one.right, one.count), Share(other.right, other.count))
    return low > 0 or high < 0


def draft_deviation(rates: Sequence[float | None], rounds: int) -> float:
    """The standard error of tokens per forward over so many rounds, from the acceptance rate at each depth."""
    reach = list(accumulate(((rate or 0.0) for rate in rates), mul))     # P(so many or more are accepted)
    mean, square = sum(reach), sum((2 * k + 1) * prob for k, prob in enumerate(reach))
    return sqrt(max(0.0, square - mean ** 2) / rounds)
