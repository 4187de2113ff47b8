"""What a policy computes from all rounds of a decode, in the time of the new ones.

A policy is a function of the session, so it folds the whole history in every round, and that takes the longer the more
rounds there are. A running fold keeps its last result.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any, TypeVar

from specdec_lib.types import Round

Value = TypeVar("Value")


class RunningFold:
    """`functools.reduce(step, rounds, start)`, which goes on from its last call where `rounds` begins with that one's.

    `step` is pure and the same in every call, and never changes a value in place. A copy in another process is empty.
    """

    def __init__(self) -> None:
        self._last: tuple[Any, tuple[Round, ...], Any] | None = None

    def __call__(self, step: Callable[[Value, Round], Value], rounds: tuple[Round, ...], start: Value) -> Value:
        """The value after these rounds."""
        begun, seen, value = self._last or (start, (), start)
        if begun != start or len(seen) > len(rounds) or not all(map(is_, seen, rounds)):
            seen, value = (), start
        for round in rounds[len(seen):]:
            value = step(value, round)
        self._last = start, rounds, value
        return value

    def __reduce__(self) -> tuple[type[RunningFold], tuple[()]]:
        return RunningFold, ()
