"""A tree that an EAGLE head grows in one call of C code (`eagle_rows.c`, `eagle_tree.h`), without Python in between.

Between the levels of a tree Python would score, rank and choose nodes, which takes time after every level.
`data/results/spec-bench.md` has the times of drafts before and since, on a processor with AVX2.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple, overload

from specdec_lib.heads.text_counts import TextCounts
from specdec_lib.scores import TokenStats
from specdec_lib.types import ROOT

ADDRESS, INT64, DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
NUMBERS = 7                                        # of a candidate, doubles: token, parent, score, statistics


class TreeRecord(ctypes.Structure):
    """`Tree` of the C code."""

    _fields_ = (*((name, INT64) for name in ("depth", "width", "size", "k")), ("least", DOUBLE),
                ("sharpness", DOUBLE), ("counts", ADDRESS), ("ends", INT64),
                ("ranks", INT64), *((name, ADDRESS) for name in ("end", "worth", "nodes", "fed")),
                *((name, INT64) for name in ("found", "count", "levels")))


class Growth(NamedTuple):
    """How far a tree grows; see `Budget`."""

    depth: int
    width: int
    size: int
    least: float                                   # no level below a path that is less probable
    end: frozenset[int]
    sharpness: float = 1.0                         # of the probabilities, see `what/eagle2.py: log_chances`
    counts: TextCounts | None = None               # of the text, likewise; it has read the text
    worth: tuple[float, ...] = ()                  # by rank: what a path's probability must be, `RowCosts.least`


class ScoredNode(NamedTuple):
    """A scored candidate of the growing tree."""

    token: int
    parent: int                                    # its index in the pool of all candidates, or ROOT
    score: float                                   # log-probability of its path, sharpened
    stat: TokenStats


class Candidates(Sequence[ScoredNode]):
    """Scored candidates from `numbers`, NUMBERS of each; one becomes an object when it is asked for, since few are."""

    def __init__(self, numbers: list[float]):
        self.numbers = numbers
        self.scores = numbers[2::NUMBERS]

    def __len__(self) -> int:
        return len(self.scores)

    @overload
    def __getitem__(self, node: int) -> ScoredNode: ...
    @overload
    def __getitem__(self, node: slice) -> list[ScoredNode]: ...
    def __getitem__(self, node: int | slice) -> ScoredNode | list[ScoredNode]:
        if isinstance(node, slice):
            return [self[place] for place in range(*node.indices(len(self)))]
        at = NUMBERS * range(len(self))[node]
        token, parent, score, *stat = self.numbers[at:at + NUMBERS]
        return ScoredNode(int(token), int(parent), score, TokenStats(*stat))

    def asked(self) -> int:
        """How many candidates have children."""
        return len({*self.numbers[1::NUMBERS]} - {ROOT})

    def edges(self, nodes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens of these candidates, and their parents by the places in `nodes`, among which they must be."""
        place = {ROOT: ROOT} | {node: row for row, node in enumerate(nodes)}
        return (tuple(int(self.numbers[NUMBERS * node]) for node in nodes),
                tuple(place[int(self.numbers[NUMBERS * node + 1])] for node in nodes))


class TreeMemory:
    """The record of one growing tree and the memory that the C code fills; it is kept for the next one."""

    def __init__(self, growth: Growth, k: int):
        inner = growth.width * (growth.depth - 1)
        self.nodes = (DOUBLE * (NUMBERS * (growth.width + inner * growth.width)))()
        self.fed = (INT64 * max(1, inner))()
        self.end = (INT64 * len(growth.end))(*growth.end)
        self.worth = (DOUBLE * len(growth.worth))(*growth.worth)
        counts = None if growth.counts is None else ctypes.addressof(growth.counts.record)
        self.record = TreeRecord(growth.depth, growth.width, growth.size, k, growth.least, growth.sharpness, counts,
                                 len(growth.end), len(growth.worth),
                                 *map(ctypes.addressof, (self.end, self.worth, self.nodes, self.fed)))
        self.address = ctypes.addressof(self.record)

    def candidates(self) -> Candidates:
        """What was scored, level by level, best first in each."""
        return Candidates(self.nodes[:NUMBERS * self.record.found])

    def computed(self) -> list[int]:
        """The candidates whose rows are in the cache, in the order of the rows."""
        return self.fed[:self.record.count]
