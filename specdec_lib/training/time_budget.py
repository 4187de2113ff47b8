"""A command's minutes: how much of them is left, and lists that stop where their share of it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import perf_counter


class TimeBudget:
    """`minutes` from now on."""

    def __init__(self, minutes: float, clock: Callable[[], float] = perf_counter):
        self.clock, self.end = clock, clock() + 60 * minutes

    @property
    def left(self) -> float:
        """Seconds, none below zero."""
        return max(0.0, self.end - self.clock())

    def spend(self, seconds: float) -> None:
        """Counts time that was used before, by a run that was killed."""
        self.end -= seconds

    def cut(self, items: Iterable, share: float = 1.0, least: int = 1) -> BudgetShare:
        """The items until `share` of what is left now is over, but at least `least` of them."""
        return BudgetShare(items, self.clock, self.clock() + share * self.left, least)


class BudgetShare:
    """Items until the clock stands at `stop`; `taken` counts those handed out. The last may end too late."""

    def __init__(self, items: Iterable, clock: Callable[[], float], stop: float, least: int):
        self.items, self.clock, self.stop, self.least, self.taken = iter(items), clock, stop, least, 0

    def __iter__(self) -> Iterator:
        while self.taken < self.least or self.clock() < self.stop:
            found = list(islice(self.items, 1))    # asked for only now: making it may be what takes the time
            if not found:
                return
            self.taken += 1
            yield found[0]
