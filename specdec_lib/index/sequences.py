"""How an index follows sessions: what two texts share, and how a copy goes on.

An index keeps the prefix that a new text has in common with what it has read, takes the rest back, and reads
the tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count
from operator import ne


def common_prefix(old: tuple[int, ...], new: tuple[int, ...]) -> int:
    """How many first tokens two texts share; a text that only grew costs one comparison at C speed."""
    shorter = min(len(old), len(new))
    if new[:len(old)] == old:
        return shorter
    return next(compress(count(), map(ne, old, new)), shorter)


def continuation(tokens: Sequence[int], start: int, n: int) -> tuple[int, ...]:
    """The `n` tokens that follow if what stands from `start` on is copied to the end.

    A copy that reaches the end of the text goes on with its own first tokens, as in LZ77: a loop of period 3
    is continued for as long as is asked. Empty where `start` lies at the end.
    """
    out = list(tokens[start:start + n])
    period = len(tokens) - start
    while period > 0 and len(out) < n:
        out.append(out[len(out) - period])
    return tuple(out)


def until_end(tokens: Iterable[int], end: frozenset[int]) -> tuple[int, ...]:
    """The tokens up to and including the first end token: nothing after it could ever be emitted."""
    out = []
    for token in tokens:
        out.append(token)
        if token in end:
            break
    return tuple(out)


def put_back(table: dict, before: Mapping) -> None:
    """Undoes a change of a table: what `before` has for a key stands there again, and None means that nothing did."""
    for key, value in before.items():
        if value is None:
            del table[key]
        else:
            table[key] = value
