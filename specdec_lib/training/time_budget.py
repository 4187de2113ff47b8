"""The time budget of a command: what is left of its minutes, and iterables that stop after their share of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import perf_counter


class TimeBudget:
    """A budget of `minutes` that begins now."""

    def __init__(self, minutes: float, clock: Callable[[], float] = perf_counter):
        self.clock, self.seconds, self.end = clock, 60 * minutes, clock() + 60 * minutes

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self.end - self.clock())

    def spend(self, seconds: float) -> None:
        """Subtracts time that an earlier, killed run used."""
        self.end -= seconds

    @property
    def used(self) -> float:
        """The seconds that were used, in this run and as far as told in earlier ones; they may be more than there were.
        """
        return self.seconds - (self.end - self.clock())

    def count(self, seconds: float, before: float) -> None:
        """Subtracts what earlier runs used of the `seconds` that work took; it began here with `before` used."""
        self.spend(max(0.0, seconds - (self.used - before)))

    def cut(self, items: Iterable, share: float = 1.0, least: int = 1) -> BudgetShare:
        """The items until `share` of the time that is left now is used, but at least `least` of them."""
        return BudgetShare(items, self.clock, self.clock() + share * self.left, least)


class BudgetShare:
    """Items until the clock reaches `stop`; `taken` counts the yielded ones. The last one may end later."""

    def __init__(self, items: Iterable, clock: Callable[[], float], stop: float, least: int):
        self.items, self.clock, self.stop, self.least, self.taken = iter(items), clock, stop, least, 0

    def __iter__(self) -> Iterator:
        while self.taken < self.least or self.clock() < self.stop:
            found = list(islice(self.items, 1))    # made only here, since making an item may take the time
            if not found:
                return
            self.taken += 1
            yield found[0]
