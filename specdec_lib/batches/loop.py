"""The loop for several sequences: B rounds at a time, whose drafts are scored by one forward of the target.

Every sequence keeps its own session, method, random numbers and cache, so it emits what it would emit alone. It drafts,
accepts and ends on its own; when it ends, the next request takes its place (continuous batching, Yu et al. 2022,
Orca). Newcomers' prompts are read between two forwards, each alone or, with `read`, at once. Knows nothing about
models: `score` is handed in, and `fill` where drafters share their forwards too (`types.SharingWhat`); a drafter that
asks for nothing drafts by itself, one sequence after another.
Source of ragged acceptance in one forward: Qian et al. 2024 (BASS, arXiv 2404.15778).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from time import perf_counter
from typing import Any, NamedTuple

from specdec_lib.loop import NO_MEMORY, finish, round_of
from specdec_lib.scores import Scores
from specdec_lib.speculate import answered
from specdec_lib.types import LM, NO_DICE, Draft, Method, RandomNumbers, Seconds, Session

Score = Callable[[Sequence[tuple[Any, tuple[int, ...], Draft]]], Sequence[Scores]]
Fill = Callable[[Sequence[Any]], Sequence[Any]]    # what drafters ask for -> what each of them is sent
Read = Callable[[Sequence[Any]], None]             # targets of several newcomers, whose prompts are read at once
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
    """Seconds of one shared forward, of the drafters' if they share one, and of what all sequences did in turn."""

    when: float
    what: float
    target: float


def decode_together(requests: Iterable[BatchRequest], size: int, score: Score,
                    clock: Clock = perf_counter, fill: Fill | None = None,
                    read: Read | None = None) -> Iterator[SequenceInBatch]:
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
            if read is None:
                for number, request in islice(waiting, size - len(running)):
                    running.append(seated(number, request, clock, start))
            else:
                running += seated_together(list(islice(waiting, size - len(running))), clock, start, read)
            if not running:
                return
            running = one_forward(running, score, count, clock, start, fill)
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


def seated_together(newcomers: Sequence[tuple[int, BatchRequest]], clock: Clock, start: float,
                    read: Read) -> list[SequenceInBatch]:
    """Newcomers in their places, read at once: each is charged its share, as if one were read after another."""
    if not newcomers:
        return []
    began = clock()
    read([request.target for _, request in newcomers])
    share = (clock() - began) / len(newcomers)
    times = [began - start + share * place for place in range(len(newcomers) + 1)]
    return [SequenceInBatch(request, replace(request.session, prefill=share), number, *around)
            for (number, request), around in zip(newcomers, pairwise(times), strict=True)]


def one_forward(running: Sequence[SequenceInBatch], score: Score, count: int, clock: Clock,
                start: float, fill: Fill | None = None) -> list[SequenceInBatch]:
    """One round of every sequence, with one forward for all."""
    asking = [round_of(one.session, one.request.method, one.request.dice, fill is not None,
                       getattr(one.request.target, "vocab", None)) for one in running]
    drafts, filling = drafted(asking, fill, clock)
    before = clock()
    scores = score([(one.request.target, one.session.tokens, draft)
                    for one, draft in zip(running, drafts, strict=True)])
    target = clock() - before
    sessions = [answered(*one) for one in zip(asking, scores, strict=True)]
    own = [session.rounds[-1].seconds for session in sessions]
    shared = ForwardSeconds(sum(one.when for one in own), sum(one.what for one in own) + filling, target)
    now = clock() - start
    return [replace(one, session=timed(session, shared, now - one.now), now=now, forwards=(*one.forwards, count))
            for one, session in zip(running, sessions, strict=True)]


def drafted(asking: Sequence[Generator[Any, Any, Session]], fill: Fill | None,
            clock: Clock) -> tuple[list[Draft], float]:
    """The draft of each round, and the seconds of `fill`: what several drafters ask for is answered at once."""
    said, seconds = [next(one) for one in asking], 0.0
    while True:
        open_ = [at for at, one in enumerate(said) if not isinstance(one, Draft)]
        if not open_ or fill is None:
            return said, seconds
        before = clock()
        answers = fill([said[at] for at in open_])
        seconds += clock() - before
        for at, answer in zip(open_, answers, strict=True):
            said[at] = asking[at].send(answer)


def timed(session: Session, shared: ForwardSeconds, wall: float) -> Session:
    """The session with its last round's seconds replaced by the batch's, which add up to `wall`."""
    last = session.rounds[-1]
    seconds = Seconds(*shared, max(0.0, wall - sum(shared)))
    return replace(session, rounds=(*session.rounds[:-1], replace(last, seconds=seconds)))
