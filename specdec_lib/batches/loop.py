"""The loop for several sequences: B rounds at a time, whose drafts are scored by one forward of the target.

Every sequence keeps its own session, method, random numbers and cache, so it emits what it would emit alone. It drafts,
accepts and ends on its own; when it ends, the next request takes its place (continuous batching, Yu et al. 2022,
Orca). A newcomer's prompt is read alone, between two forwards. Knows nothing about models: `score` is handed in.
Source of ragged acceptance in one forward: Qian et al. 2024 (BASS, arXiv 2404.15778).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

from specdec_lib.loop import NO_MEMORY, finish, round_of
from specdec_lib.scores import Scores
from specdec_lib.speculate import answered
from specdec_lib.types import LM, NO_DICE, Draft, Method, RandomNumbers, Seconds, Session

Score = Callable[[Sequence[tuple[Any, tuple[int, ...], Draft]]], Sequence[Scores]]
Clock = Callable[[], float]


@dataclass(frozen=True)
class BatchRequest:
    """A session before its first round, with a target of its own and all that decodes it."""

    session: Session
    target: LM                                     # shares weights with the others, and has its own cache
    method: Method
    dice: RandomNumbers = NO_DICE
    memory: Mapping[str, Any] = field(default_factory=lambda: NO_MEMORY)

    def __post_init__(self):
        if self.method.schedule is not None:
            raise ValueError("a batch runs serial rounds: this method has a schedule of its own")


@dataclass(frozen=True)
class SequenceInBatch:
    """A sequence between two forwards; times count from the start of the batch, in seconds."""

    request: BatchRequest
    session: Session
    number: int                                    # of its request, from 0 on
    began: float                                   # when it took its place, before its prompt was read
    now: float                                     # when its last round ended; once it is done, its last token's time
    forwards: tuple[int, ...] = ()                 # the number of the shared forward of every round


class ForwardSeconds(NamedTuple):
    """Seconds of one shared forward and of what all sequences did one after another before and after it."""

    when: float
    what: float
    target: float


def decode_together(requests: Iterable[BatchRequest], size: int, score: Score,
                    clock: Clock = perf_counter) -> Iterator[SequenceInBatch]:
    """Yields each sequence when it is done; at most `size` run at once, taken in order, one request at a time.

    A round's seconds are those of the batch: what all sequences drafted, the shared forward, and the rest of its wall
    time under `how`. So rounds and prefill add up to the time from the place taken to the last token. When a sequence
    is done or the batch is abandoned, its memory is finished as `loop.run` does.
    """
    if size < 1:
        raise ValueError(f"a batch has at least one place, got {size}")
    start, waiting = clock(), enumerate(requests)
    running: list[SequenceInBatch] = []
    count = 0
    try:
        while True:
            for number, request in islice(waiting, size - len(running)):
                running.append(seated(number, request, clock, start))
            if not running:
                return
            running = one_forward(running, score, count, clock, start)
            count += 1
            over, running = ([one for one in running if one.session.done is done] for done in (True, False))
            for one in over:
                finish(one.request.memory, one.session)
            yield from over
    finally:
        for one in running:
            finish(one.request.memory, one.session)


def seated(number: int, request: BatchRequest, clock: Clock, start: float) -> SequenceInBatch:
    """The sequence in its place, its prompt read except for the last token."""
    began = clock()
    request.target.prefill(request.session.tokens[:-1])
    read = clock()
    return SequenceInBatch(request, replace(request.session, prefill=read - began), number, began - start, read - start)


def one_forward(running: Sequence[SequenceInBatch], score: Score, count: int, clock: Clock,
                start: float) -> list[SequenceInBatch]:
    """One round of every sequence, with one forward for all."""
    asking = [round_of(one.session, one.request.method, one.request.dice) for one in running]
    drafts = [next(one) for one in asking]
    before = clock()
    scores = score([(one.request.target, one.session.tokens, draft)
                    for one, draft in zip(running, drafts, strict=True)])
    target = clock() - before
    sessions = [answered(*one) for one in zip(asking, scores, strict=True)]
    own = [session.rounds[-1].seconds for session in sessions]
    shared = ForwardSeconds(sum(one.when for one in own), sum(one.what for one in own), target)
    now = clock() - start
    return [replace(one, session=timed(session, shared, now - one.now), now=now, forwards=(*one.forwards, count))
            for one, session in zip(running, sessions, strict=True)]


def timed(session: Session, shared: ForwardSeconds, wall: float) -> Session:
    """The session with its last round's seconds replaced by the batch's, which add up to `wall`."""
    last = session.rounds[-1]
    seconds = Seconds(*shared, max(0.0, wall - sum(shared)))
    return replace(session, rounds=(*session.rounds[:-1], replace(last, seconds=seconds)))
