"""A head's hold on memory that goes from decode to decode: a cache, and what was captured on it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Memory = TypeVar("Memory", bound=Any)              # it has a `cache`


class MemoryLease(Generic[Memory]):
    """Holds a memory for as long as a head uses it; the free ones lie on the network and go with it."""

    def __init__(self, free: list[Any], made: Callable[[], Memory]):
        if not free:
            gc.collect()                           # what only a cycle holds is free, too, and costs less than a capture
        self.free = free
        try:
            self.held: Memory = free.pop()
        except IndexError:                         # no test before: another thread may take the last one in between
            self.held = made()
        self.held.cache.tap(())                    # empty, whoever had it before

    def __del__(self):
        if hasattr(self, "held"):
            self.free.append(self.held)
