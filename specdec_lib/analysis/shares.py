"""Shares of counted things with their 95 % intervals, and sentences that compare two of them.

The things are taken as independent draws. Tokens of one answer are not, so the intervals are too narrow rather than too
wide: what they do not tell apart is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import hypot, sqrt
from statistics import NormalDist
from typing import NamedTuple

Z = NormalDist().inv_cdf(0.975)


class Share(NamedTuple):
    """`hits` of `count` things."""

    hits: int
    count: int

    @classmethod
    def of(cls, flags: Iterable[object]) -> Share:
        """How many of these are true."""
        some = [bool(flag) for flag in flags]
        return cls(sum(some), len(some))

    @property
    def value(self) -> float:
        """The share itself; 0 of nothing."""
        return self.hits / self.count if self.count else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval (1927); from 0 to 1 for nothing."""
        if not self.count:
            return 0.0, 1.0
        wide = self.count + Z ** 2
        middle = (self.hits + Z ** 2 / 2) / wide
        reach = Z / wide * sqrt(self.hits * (self.count - self.hits) / self.count + Z ** 2 / 4)
        return max(0.0, middle - reach), min(1.0, middle + reach)

    @property
    def said(self) -> str:
        """`31 of 48, 0.65 (0.50 to 0.77)`."""
        low, high = self.interval
        return f"{self.hits} of {self.count}, {self.value:.2f} ({low:.2f} to {high:.2f})"


def difference(one: Share, other: Share) -> tuple[float, float, float]:
    """One share minus the other, and its 95 % interval by Newcombe's method (1998, number 10)."""
    gap, ((low, high), (least, most)) = one.value - other.value, (one.interval, other.interval)
    return (gap, gap - hypot(one.value - low, most - other.value), gap + hypot(high - one.value, other.value - least))


def compared(name: str, one: Share, base: str, other: Share, above: str, below: str) -> str:
    """`x is right more often than y: 40 of 48 against 20 of 48, ...`, or that it is not told apart from it."""
    gap, low, high = difference(one, other)
    said = f"{above} than" if low > 0 else f"{below} than" if high < 0 else "not told apart from"
    return (f"{name} is {said} {base}: {one.hits} of {one.count} against {other.hits} of {other.count}, "
            f"a difference of {gap:+.2f} ({low:+.2f} to {high:+.2f})")


def forecast(name: str, mean: float, kept: Share) -> str:
    """Whether a mean forecast lies in the interval of what came: too high, too low or not told apart."""
    low, high = kept.interval
    said = "too high for" if mean > high else "too low for" if mean < low else "not told apart from"
    return f"{name}: a mean probability of {mean:.2f} is {said} what was accepted, {kept.said}"


def changed(name: str, won: int, lost: int) -> str:
    """What a change of the method did to its guesses: a gain or a loss only where the changed ones tell it apart."""
    low, high = Share(won, won + lost).interval
    said = "a gain" if low > 0.5 else "a loss" if high < 0.5 else "no difference shown"
    return f"{name} {won} become right and {lost} wrong: {said}"
