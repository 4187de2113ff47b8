"""Workers: where a schedule's drafter runs beside the target: in turn with it, in a thread, or in a process of its own.

A process is forked for each decode: it shares the weights, has caches of its own and computes on its own cores. A call
sends new tokens and a budget; the draft comes back. However a worker is lost, a sentence says so and no process stays.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from specdec_lib.lazy import torch
from specdec_lib.speculate import drafted
from specdec_lib.types import Budget, Draft, RandomNumbers, Refusal, Session, What

INLINE, THREAD, PROCESS = KINDS = ("inline", "thread", "process")
PATIENCE = 120.0                                   # seconds without an answer after which a worker has failed
HEARTBEAT = 1.0                                    # seconds after which an idle worker looks whether its parent lives
SIGNALS = {int(one): one.name for one in signal.Signals}


class Drafted(NamedTuple):
    """A worker's answer, and the seconds that it worked on it."""

    draft: Draft
    seconds: float


class DraftWorker(Protocol):
    """Drafts one call at a time: `start`, then `result`."""

    parallel: bool                                 # whether it works while this process does something else

    def start(self, session: Session, budget: Budget, dice: RandomNumbers) -> None: ...
    def result(self) -> Drafted: ...
    def close(self) -> None: ...


def draft_timed(what: What, session: Session, budget: Budget, dice: RandomNumbers) -> Drafted:
    """A draft and the seconds it took; a budget of depth 0 drafts nothing."""
    start = perf_counter()
    draft = drafted(what, session, budget, dice) if budget.depth else Draft()
    return Drafted(draft, perf_counter() - start)


class InlineWorker:
    """Drafts at once, in this thread: one after another, so that times are measured sequentially."""

    parallel = False

    def __init__(self, what: What):
        self.what, self.done = what, Drafted(Draft(), 0.0)

    def start(self, session: Session, budget: Budget, dice: RandomNumbers) -> None:
        self.done = draft_timed(self.what, session, budget, dice)

    def result(self) -> Drafted:
        return self.done

    def close(self) -> None:
        pass


STREAMS: list[Any] = []                            # of drafters that are done; see `ThreadWorker`


class ThreadWorker:
    """Drafts in a thread, on a CUDA stream of its own where there is a GPU: kernels of both run side by side there."""

    parallel = True

    def __init__(self, what: What):
        self.what, self.pool = what, ThreadPoolExecutor(1, "drafter")
        self.stream = idle_stream() if torch.cuda.is_available() else None
        self.ready: Any = None                     # when what this process launched before the call is computed
        self.waiting: Future[Drafted] = Future()

    def start(self, session: Session, budget: Budget, dice: RandomNumbers) -> None:
        if self.stream is not None:
            self.ready = torch.cuda.current_stream().record_event()
        self.waiting = self.pool.submit(self.work, session, budget, dice)

    def work(self, *call: Any) -> Drafted:
        if self.stream is None:
            return draft_timed(self.what, *call)
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.ready)
            done = draft_timed(self.what, *call)
            self.stream.synchronize()
            return done

    def result(self) -> Drafted:
        return self.waiting.result()

    def close(self) -> None:
        self.pool.shutdown()
        if self.stream is not None:
            self.stream.synchronize()              # a draft that failed has not
            STREAMS.append(self.stream)
            self.stream = None


def idle_stream() -> Any:
    """A CUDA stream that no drafter uses: one that served an earlier one, or a new one.

    torch has 32 and hands them out in turn; made anew for each decode, one would at some time be that of a capture.
    """
    return STREAMS.pop() if STREAMS else torch.cuda.Stream()


class ProcessWorker:
    """Drafts in a forked process that computes with one thread on `cores`."""

    parallel = True

    def __init__(self, what: What, session: Session, cores: frozenset[int]):
        context = get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.sent = session.tokens                 # what the process knows; a fork has the prompt, however long
        bare = replace(session, rounds=())         # what the process needs once
        self.process = context.Process(target=serve, args=(theirs, self.pipe, what, bare, cores), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})       # the process is born deaf to Ctrl-C
        try:
            self.process.start()
        except OSError as error:
            raise Refusal(f"no drafting process can be started ({error.strerror}): draft in this process with"
                          " workers=\"inline\"") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def start(self, session: Session, budget: Budget, dice: RandomNumbers) -> None:
        kept = shared_prefix(self.sent, session.tokens)
        call = (kept, session.tokens[kept:], session.prompt, session.remaining, budget, dice)
        self.sent = session.tokens
        try:
            self.pipe.send_bytes(pickle.dumps(call))
        except OSError:
            raise Refusal(self.fate()) from None

    def result(self) -> Drafted:
        try:
            if not self.pipe.poll(PATIENCE):
                raise Refusal(f"the drafting process has not answered for {PATIENCE:.0f} seconds and was stopped:"
                              " run again, or draft in this process with workers=\"inline\"")
            answer = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            raise Refusal(self.fate()) from None
        if isinstance(answer, str):
            raise Refusal(f"the drafting process failed: {answer}")
        return answer

    def fate(self) -> str:
        """The sentence for a process that is gone."""
        self.process.join(HEARTBEAT)
        code = self.process.exitcode
        why = f"signal {SIGNALS.get(-code, -code)}" if code is not None and code < 0 else f"exit code {code}"
        return (f"the drafting process ended in the middle of a decode ({why}; the system stops the largest process"
                " when memory runs out): run again, or draft in this process with workers=\"inline\"")

    def close(self) -> None:
        with suppress(OSError):
            self.pipe.close()
        self.process.kill()
        self.process.join()
        with suppress(ValueError):                 # another thread reaped it, and has not said so yet
            self.process.close()


def shared_prefix(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many first tokens two sequences have in common."""
    if one == other[:len(one)]:                    # the usual case: the text went on
        return len(one)
    return next(place for place, (mine, yours) in enumerate(zip(one, (*other, -1), strict=False)) if mine != yours)


def serve(pipe: Connection, parents: Connection, what: What, session: Session, cores: frozenset[int]) -> None:
    """The life of a drafting process: calls come through the pipe until it closes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)   # Ctrl-C is the parent's to handle
    parents.close()                                # else the pipe would never end
    parent = os.getppid()
    with suppress(OSError):                        # a system may forbid it; then the cores are shared
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(1)                       # a forked process has none of OpenMP's other threads
    tokens = session.tokens
    with suppress(EOFError, OSError):
        while True:
            while not pipe.poll(HEARTBEAT):
                if os.getppid() != parent:
                    return
            kept, new, prompt, remaining, budget, dice = pickle.loads(pipe.recv_bytes())
            tokens = tokens[:kept] + new
            here = replace(session, tokens=tokens, prompt=prompt, remaining=remaining)
            try:
                answer: Drafted | str = draft_timed(what, here, budget, dice)
            except Exception as error:             # the parent says it; this process ends when the pipe closes
                answer = f"{type(error).__name__}: {error}"
            pipe.send_bytes(pickle.dumps(answer))


@dataclass(frozen=True)
class Workers:
    """Opens the worker of a decode. `kind` is one of KINDS."""

    kind: str = INLINE

    def __post_init__(self):
        if self.kind not in KINDS:
            raise Refusal(f"workers are one of {', '.join(KINDS)} or auto, got {self.kind!r}")

    @contextmanager
    def open(self, what: What, session: Session) -> Iterator[DraftWorker]:
        """The worker of one decode; at its end it is gone, and this process has its cores and threads again."""
        if self.kind == PROCESS:
            mine, theirs = split_cores(cores_here())
            with computing_on(mine):
                worker: DraftWorker = ProcessWorker(what, session, theirs)
                try:
                    yield worker
                finally:
                    worker.close()
            return
        worker = ThreadWorker(what) if self.kind == THREAD else InlineWorker(what)
        try:
            yield worker
        finally:
            worker.close()


def kind_for(name: str, device: str) -> str:
    """The kind that `auto` names here: a thread on a GPU, a process on several cores of Linux, else inline.

    Raises Refusal for an unknown name, and for a process with a model on a GPU, which a fork cannot use.
    """
    if name != "auto":
        Workers(name)
        if name == PROCESS and device != "cpu":
            raise Refusal(f"a drafting process cannot use a model on {device}: take --workers thread")
        return name
    if device != "cpu":
        return THREAD
    return PROCESS if sys.platform == "linux" and len(cores_here()) > 1 else INLINE


def cores_here() -> frozenset[int]:
    """The cores that this thread may use."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def split_cores(cores: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
    """The target's cores and the drafter's: one for the drafter, all others for the target; one core is shared."""
    ordered = sorted(cores)
    return (frozenset(ordered[:-1] or ordered), frozenset(ordered[-1:]))


class Restrictions(threading.local):
    """Those in force in a thread, the latest last, and the cores and torch threads that it had before the first."""

    def __init__(self):
        self.cores: list[list[int]] = []
        self.before: tuple[frozenset[int], int] = frozenset(), 1

    def apply(self) -> None:
        """Keeps this thread and torch to the latest restriction, or gives back what they had."""
        first, threads = self.before
        cores = self.cores[-1] if self.cores else first
        torch.set_num_threads(min(threads, len(cores)) if self.cores else threads)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)


HELD = Restrictions()


@contextmanager
def computing_on(cores: frozenset[int]) -> Iterator[None]:
    """Keeps this thread and torch to these cores, and gives back what they had; several may close in any order."""
    if not HELD.cores:
        HELD.before = cores_here(), torch.get_num_threads()
    own = list(cores)                              # an object of its own: equal cores may be held twice
    HELD.cores.append(own)
    try:
        HELD.apply()
        yield
    finally:
        HELD.cores[:] = [one for one in HELD.cores if one is not own]
        HELD.apply()
