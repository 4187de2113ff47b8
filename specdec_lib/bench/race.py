"""A race: one prompt decoded by several methods in turn, each with a clock of its own.

Two decodes at the same time would slow each other down, so only one computes at any moment. In the order `rounds` the
method whose clock is behind computes its next round, so that all clocks stay close and the text shows who is ahead; in
the order `answers` each answer is finished before the next begins. Knows no models: a decoding is an iterator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

from specdec_lib.measure import Cost, share, speedup
from specdec_lib.types import Refusal, Session

ROUNDS, ANSWERS = ORDERS = ("rounds", "answers")
Decoding = Callable[[], Iterator[Session]]         # begins a decode, which yields the session after every round
TIMED = {
    ROUNDS: "Decoded in turn, never at the same time: the method whose clock is behind computes the next round. A clock"
            " runs only while its method computes, and leaves out the prefill.",
    ANSWERS: "Decoded one answer after another, never at the same time. A clock runs only while its method computes,"
             " and leaves out the prefill.",
}


@dataclass(frozen=True)
class Racer:
    """One method of a race: its answer so far, and what its clock showed at the end of every round."""

    name: str
    session: Session | None = None                 # None before the first round
    clock: tuple[float, ...] = ()                  # seconds of decoding, without the prefill
    done: bool = False

    @property
    def seconds(self) -> float:
        return self.clock[-1] if self.clock else 0.0

    @property
    def output(self) -> tuple[int, ...]:
        return self.session.output if self.session else ()

    @property
    def tokens_per_second(self) -> float | None:
        return share(len(self.output), self.seconds)

    @property
    def tokens_per_forward(self) -> float | None:
        return share(len(self.output), len(self.clock))

    def after(self, session: Session | None, took: float) -> Racer:
        """The racer after a round of so many seconds, of which the first included the prefill; None: it had ended."""
        if session is None:
            return replace(self, done=True)
        spent = self.seconds + took - (0.0 if self.clock else session.prefill)
        return Racer(self.name, session, (*self.clock, spent), session.done)

    def at(self, seconds: float) -> Racer:
        """The racer as it stood when its clock showed so many seconds: the rounds that had ended by then."""
        rounds = sum(end <= seconds for end in self.clock)
        if self.session is None or rounds == len(self.clock):
            return self
        kept = self.session.rounds[:rounds]
        length = self.session.prompt + sum(len(one.verdict.tokens) for one in kept)
        gone = len(self.session.tokens) - length
        session = replace(self.session, tokens=self.session.tokens[:length], rounds=kept,
                          remaining=self.session.remaining + gone)
        return Racer(self.name, session, self.clock[:rounds])


@dataclass(frozen=True)
class RaceState:
    """All racers at one moment."""

    racers: tuple[Racer, ...]
    order: str = ROUNDS

    @property
    def finished(self) -> bool:
        return all(one.done for one in self.racers)

    @property
    def seconds(self) -> float:
        """What the clock that has run longest shows."""
        return max(one.seconds for one in self.racers)

    def at(self, seconds: float) -> RaceState:
        """The race as it stood when every clock showed so many seconds."""
        return replace(self, racers=tuple(one.at(seconds) for one in self.racers))


@dataclass(frozen=True)
class RaceResult:
    """What one racer achieved; rates are of decoding, and None where nothing was decoded."""

    method: str
    prefill: float                                 # seconds
    seconds: float                                 # of decoding
    tokens: int
    tokens_per_second: float | None
    tokens_per_forward: float | None
    times_first: float | None                      # seconds per token of the first racer over its own
    same_ids: bool | None                          # as the first; None: one has stopped, and both agree so far


class Race:
    """Several decodings of one prompt: `start`, then `step` until it is False; `stop` ends all of them at once."""

    def __init__(self, decodings: Mapping[str, Decoding], order: str = ROUNDS,
                 timer: Callable[[], float] = perf_counter):
        if not decodings:
            raise Refusal("a race needs at least one method")
        if order not in ORDERS:
            raise ValueError(f"the order of a race is one of {', '.join(ORDERS)}, got {order!r}")
        self.decodings, self.order, self.timer = dict(decodings), order, timer
        self.racers = {name: Racer(name) for name in self.decodings}
        self.streams: dict[str, Iterator[Session]] = {}

    @property
    def state(self) -> RaceState:
        return RaceState(tuple(self.racers.values()), self.order)

    @property
    def running(self) -> bool:
        return bool(self.streams)

    def start(self) -> None:
        """Begins all decodings anew; nothing is computed yet, and no clock runs."""
        self.stop()
        self.racers = {name: Racer(name) for name in self.decodings}
        self.streams = {name: begin() for name, begin in self.decodings.items()}

    def step(self) -> bool:
        """Lets one method compute one round; False once all have ended or the race was stopped."""
        if not self.streams:
            return False
        name = self.next_name()
        try:
            start = self.timer()
            session = next(self.streams[name], None)
            took = self.timer() - start
        except BaseException:                      # Ctrl-C as well: the other decodings end too
            self.stop()
            raise
        self.racers[name] = self.racers[name].after(session, took)
        if self.racers[name].done:
            close(self.streams.pop(name))
        return bool(self.streams)

    def next_name(self) -> str:
        """Who computes next: the one whose clock is behind, or in the order `answers` the first that has not ended."""
        if self.order == ANSWERS:
            return next(iter(self.streams))
        return min(self.streams, key=lambda name: self.racers[name].seconds)

    def stop(self) -> None:
        """Ends every decoding; what was decoded stays in `state`."""
        while self.streams:
            close(self.streams.popitem()[1])


def close(stream: Iterator[Session]) -> None:
    """Ends a decoding, so that its workers end and its memory is told."""
    end = getattr(stream, "close", None)
    if end is not None:
        end()


def results(state: RaceState) -> list[RaceResult]:
    """What every racer achieved, in the order of the race."""
    first = state.racers[0]
    costs = {one.name: [Cost(len(one.output), one.seconds)] for one in state.racers}
    return [RaceResult(one.name, one.session.prefill if one.session else 0.0, one.seconds, len(one.output),
                       one.tokens_per_second, one.tokens_per_forward, speedup(costs[first.name], costs[one.name]),
                       same_ids(first, one)) for one in state.racers]


def same_ids(one: Racer, other: Racer) -> bool | None:
    """Whether both answers have the same ids; None where one has not ended and they agree as far as both go."""
    if one.done and other.done:
        return one.output == other.output
    shared = min(len(one.output), len(other.output))
    return None if one.output[:shared] == other.output[:shared] else False
