"""A tree that an EAGLE head grows in one call of C code (`eagle_rows.c`, `eagle_tree.h`), without Python in between.

Between the levels of a tree Python would score, rank and choose nodes, which takes time after every level.
`data/results/README.md` has the times of drafts before and since.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import NamedTuple

from specdec_lib.scores import TokenStats

ADDRESS, INT64, DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
NUMBERS = 7                                        # of a candidate, doubles: token, parent, score, statistics


class TreeRecord(ctypes.Structure):
    """`Tree` of the C code."""

    _fields_ = (*((name, INT64) for name in ("depth", "width", "size", "k")), ("least", DOUBLE),
                ("sharpness", DOUBLE), ("ends", INT64),
                *((name, ADDRESS) for name in ("end", "nodes", "fed")),
                *((name, INT64) for name in ("found", "count", "levels")))


class Growth(NamedTuple):
    """How far a tree grows; see `Budget`."""

    depth: int
    width: int
    size: int
    least: float                                   # no level below a path that is less probable
    end: frozenset[int]
    sharpness: float = 1.0                         # of the probabilities, see `what/eagle2.py: sharpened`


class ScoredNode(NamedTuple):
    """A scored candidate of the growing tree."""

    token: int
    parent: int                                    # its index in the pool of all candidates, or ROOT
    score: float                                   # log-probability of its path, sharpened
    stat: TokenStats


class TreeMemory:
    """The record of one growing tree and the memory that the C code fills; it is kept for the next one."""

    def __init__(self, growth: Growth, k: int):
        inner = growth.width * (growth.depth - 1)
        self.nodes = (DOUBLE * (NUMBERS * (growth.width + inner * growth.width)))()
        self.fed = (INT64 * max(1, inner))()
        self.end = (INT64 * len(growth.end))(*growth.end)
        self.record = TreeRecord(growth.depth, growth.width, growth.size, k, growth.least, growth.sharpness,
                                 len(growth.end), *map(ctypes.addressof, (self.end, self.nodes, self.fed)))
        self.address = ctypes.addressof(self.record)

    def candidates(self) -> Iterator[ScoredNode]:
        """What was scored, level by level, best first in each."""
        numbers = self.nodes[:NUMBERS * self.record.found]
        for at in range(0, len(numbers), NUMBERS):
            token, parent, score, *stat = numbers[at:at + NUMBERS]
            yield ScoredNode(int(token), int(parent), score, TokenStats(*stat))

    def computed(self) -> list[int]:
        """The candidates whose rows are in the cache, in the order of the rows."""
        return self.fed[:self.record.count]
