"""How an index follows sessions: the common prefix of two texts, and how a copy continues.

An index keeps the prefix that a new text shares with the text it has read, takes the rest back, and reads the tail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, count
from operator import ne
from typing import Generic, NamedTuple, TypeVar

State = TypeVar("State")


class Suffix(NamedTuple, Generic[State]):
    """Suffixes of a text that occur at the same places: the length of the longest, and the state of their index."""

    length: int
    state: State


def common_prefix(old: tuple[int, ...], new: tuple[int, ...]) -> int:
    """Length of the common prefix; for a text that only grew this is one comparison at C speed."""
    shorter = min(len(old), len(new))
    if new[:len(old)] == old:
        return shorter
    return next(compress(count(), map(ne, old, new)), shorter)


def continuation(tokens: Sequence[int], start: int, n: int) -> tuple[int, ...]:
    """The `n` tokens that follow the text if it is continued with a copy from `start` on.

    A copy that reaches the end of the text continues with its own first tokens, as in LZ77: a loop of period 3 is
    continued for any `n`. Empty if `start` is the end of the text.
    """
    out = list(tokens[start:start + n])
    period = len(tokens) - start
    while period > 0 and len(out) < n:
        out.append(out[len(out) - period])
    return tuple(out)


def restore(table: dict, before: Mapping) -> None:
    """Undo a change of a table: restore the values in `before`, and delete the keys whose value there is None."""
    for key, value in before.items():
        if value is None:
            del table[key]
        else:
            table[key] = value
