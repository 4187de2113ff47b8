"""Drafts whose forwards a batch shares: what a drafter asks for, and how it is sent the answer.

A drafter that can leave its forwards to others is a generator (`types.SharingWhat`): it yields what is to be scored and
goes on with the scores. Without a batch the same generator runs through at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any, NamedTuple, TypeVar, cast

from specdec_lib.scores import Scores
from specdec_lib.types import Budget, Draft, RandomNumbers, Session, SharingWhat, What

Result = TypeVar("Result")


class ScoresRequest(NamedTuple):
    """What a drafter asks of its network and does not run itself: sequences of a batch are scored in one forward."""

    model: Callable[[tuple[int, ...], Draft], Scores]
    tokens: tuple[int, ...]
    draft: Draft

    def alone(self) -> Scores:
        """The answer by a forward of its own."""
        return self.model(self.tokens, self.draft)


def asking_of(what: What, session: Session, budget: Budget, dice: RandomNumbers) -> Generator[Any, Any, Draft]:
    """A draft whose forwards may be others' (`types.SharingWhat`); a drafter that shares none drafts by itself."""
    if hasattr(what, "asking"):
        return (yield from cast(SharingWhat, what).asking(session, budget, dice))
    return what(session, budget, dice)


def shared_draft(asking: Generator[Any, Any, Draft]) -> Generator[Any, Any, tuple[Draft, float]]:
    """Passes on what a drafter asks for and what it is sent; returns its draft and the seconds in between."""
    waited = 0.0
    try:
        request = next(asking)
        while True:
            start = perf_counter()
            answer = yield request
            waited += perf_counter() - start
            request = asking.send(answer)
    except StopIteration as end:
        return end.value, waited


def run_through(growth: Generator[Scores, Scores, Result]) -> Result:
    """What a growth comes to whose `ask` scores at once: it is sent what it yields."""
    try:
        scores = next(growth)
        while True:
            scores = growth.send(scores)
    except StopIteration as end:
        return end.value
