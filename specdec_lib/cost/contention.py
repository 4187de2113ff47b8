"""Contention: how much slower a forward of the target is on its cores while a drafter computes on the core beside them.

The two are placed as a decode with a drafting process places them (`schedules.workers`): one core for the drafter, all
others for the target. Windows of time alternate: the target alone, both, the drafter alone. A pair is neighbours in
time, so that drift of the machine cancels. The median ratio is the `kappa` of `schedules.simulate`. What the target
loses because it has fewer cores is not in it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import NamedTuple

from specdec_lib.files import write_text
from specdec_lib.lazy import torch
from specdec_lib.schedules.workers import PATIENCE, computing_on, cores_here, split_cores
from specdec_lib.types import LM, Draft, Refusal

Step = Callable[[], object]
SIDES = ("forward", "draft step")                  # keys of a saved file
WINDOW = 1.0                                       # seconds
FEWEST = 2                                         # pairs that quartiles need
MADE = "measure it with 'specdec cost --contention --out FILE'"


class SecondsPair(NamedTuple):
    """Seconds of one step while the other side rests, and while it computes."""

    alone: float
    beside: float

    @property
    def ratio(self) -> float:
        return self.beside / self.alone


@dataclass(frozen=True)
class ContentionRun:
    """Paired seconds of a target forward and of a draft step on one machine."""

    target: tuple[SecondsPair, ...]
    drafter: tuple[SecondsPair, ...]
    about: Mapping = field(default_factory=dict)

    def __post_init__(self):
        if min(len(self.target), len(self.drafter)) < FEWEST:
            raise Refusal(f"contention needs at least {FEWEST} pairs of each side: {MADE}")
        if not all(0 < seconds < 1e9 for pair in (*self.target, *self.drafter) for seconds in pair):
            raise Refusal(f"contention needs times above zero: {MADE}")

    @property
    def kappa(self) -> float:
        """The median factor on the target's forwards, at least 1."""
        return max(1.0, median(pair.ratio for pair in self.target))

    def told(self) -> str:
        """One sentence with the medians and quartiles of both sides."""
        sides = []
        for name, pairs in (("a forward of the target", self.target), ("a draft step", self.drafter)):
            ratios = [pair.ratio for pair in pairs]
            low, _, high = quantiles(ratios, n=4, method="inclusive")
            sides.append(f"{name} takes {median(pair.alone for pair in pairs) * 1e3:.1f} ms alone and"
                         f" {median(ratios):.2f} times as long (quartiles {low:.2f} to {high:.2f}) beside the other")
        return f"Measured in {len(self.target)} pairs: {'; '.join(sides)}; kappa = {self.kappa:.2f}."

    def save(self, path: str | Path) -> None:
        """Writes one JSON file; creates a missing folder."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        kept = {"kappa": self.kappa, **dict(zip(SIDES, (self.target, self.drafter), strict=True)), **self.about}
        write_text(Path(path), json.dumps(kept, indent=1) + "\n")


def load_contention(path: str | Path) -> ContentionRun:
    """A saved measurement; Refusal if the file is missing or holds none."""
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        target, drafter = (tuple(SecondsPair(float(alone), float(beside)) for alone, beside in saved[name])
                           for name in SIDES)
        return ContentionRun(target, drafter, {name: value for name, value in saved.items()
                                               if name not in ("kappa", *SIDES)})
    except OSError as error:
        raise Refusal(f"the contention in {path} cannot be read ({error.strerror}): {MADE}") from None
    except Refusal as error:
        raise Refusal(f"{path} holds no contention: {error}") from None
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise Refusal(f"{path} holds no contention ({error}): {MADE}") from None


class ForwardStep:
    """Calls a model on `context` tokens and a last one that differs from call to call, as decoding one token does."""

    def __init__(self, lm: LM, context: int, vocab: int):
        self.lm, self.vocab, self.calls = lm, vocab, 0
        self.base = tuple(place * 7 % vocab for place in range(context))
        lm.prefill(self.base)

    def __call__(self) -> object:
        self.calls += 1
        return self.lm((*self.base, self.calls % self.vocab), Draft()).best        # on the host


def measure_contention(target: Step, drafter: Step, pairs: int = 15, seconds: float = WINDOW,
                       progress: Callable[[int, int], None] = lambda done, total: None,
                       about: Mapping | None = None) -> ContentionRun:
    """Pairs of windows of `seconds` each, in which either side works alone and both together.

    Raises Refusal for fewer than two pairs, on fewer than two cores, and when the drafting process is lost.
    """
    cores = cores_here()
    if pairs < FEWEST or not 0 < seconds <= 60:
        raise Refusal(f"contention takes {FEWEST} pairs of windows or more, a minute at most: got {pairs}, {seconds}")
    if len(cores) < 2:
        raise Refusal("contention is between cores, and this process has only one")
    mine, theirs = split_cores(cores)
    sides: tuple[list[SecondsPair], list[SecondsPair]] = ([], [])
    with computing_on(mine), busy_process(drafter, theirs) as drafting:
        timed(target, 0.0)                         # warms up
        for place in range(pairs):
            alone = timed(target, seconds)
            with drafting() as step:
                beside = timed(target, seconds)
            with drafting() as lonely:
                sleep(seconds)
            sides[0].append(SecondsPair(alone, beside))
            sides[1].append(SecondsPair(lonely.seconds, step.seconds))
            progress(place + 1, pairs)
    return ContentionRun(tuple(sides[0]), tuple(sides[1]), about or {})


def timed(step: Step, seconds: float, clock: Callable[[], float] = perf_counter) -> float:
    """Mean seconds of a step, repeated for at least so long."""
    begun, count = clock(), 0
    while True:
        step()
        count += 1
        now = clock()
        if now - begun >= seconds:
            return (now - begun) / count


@dataclass
class StepTime:
    """Mean seconds of the other process's steps, known when its window has ended."""

    seconds: float = 0.0


@contextmanager
def busy_process(step: Step, cores: frozenset[int]) -> Iterator[Callable]:
    """A forked process that repeats the step while `with drafting() as time:` lasts; at the end it is gone."""
    context = get_context("fork")
    pipe, theirs = context.Pipe()
    process: BaseProcess = context.Process(target=repeat_when_asked, args=(theirs, pipe, step, cores), daemon=True)
    process.start()
    theirs.close()

    def answer() -> float:
        try:
            if pipe.poll(PATIENCE):
                return pipe.recv()
        except (EOFError, OSError):
            pass
        raise Refusal("the process that computes beside the target has ended or does not answer: measure again")

    @contextmanager
    def drafting() -> Iterator[StepTime]:
        found = StepTime()
        pipe.send(True)
        answer()                                   # it has made its first step
        yield found
        pipe.send(False)
        found.seconds = answer()

    try:
        yield drafting
    finally:
        pipe.close()
        process.kill()
        process.join()


def repeat_when_asked(pipe: Connection, parents: Connection, step: Step, cores: frozenset[int]) -> None:
    """The life of that process: a word begins the steps, another ends them and is answered with their mean seconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)   # Ctrl-C is the parent's to handle
    parents.close()
    with suppress(OSError):
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        while True:
            pipe.recv()
            step()
            pipe.send(0.0)
            begun, count = perf_counter(), 0
            while not count or not pipe.poll():
                step()
                count += 1
            pipe.recv()
            pipe.send((perf_counter() - begun) / count)
