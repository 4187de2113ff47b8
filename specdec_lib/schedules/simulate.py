"""Simulation of schedules in time: tasks on lanes, a logged or drawn trace of rounds, and what each lane spent on it.

A lane (a drafter, a target, a stage of a pipeline) does one task at a time, in order. A task that is ready at r and
takes d ends at max(free, r) + d. While two lanes or more work, each is slower by the factor `kappa` (contention: shared
cores, memory bandwidth or multiprocessors). Seconds come from a calibration and not from a clock, so everything here is
simulated, and a name or a column must say so. The tokens of a schedule with one barrier a round do not depend on time:
the replay of a logged trace is exact but for the durations. The prefill is not part of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

DRAFTER, TARGET = "drafter", "target"
DRAFT, VERIFY, VERDICT, ROLLED_BACK, WAIT = KINDS = ("draft", "verify", "verdict", "rolled back", "wait")
TINY = 1e-12                                       # of a task's seconds: rounding


class Task(NamedTuple):
    """Work for one lane. Lanes begin their tasks in the order given, each when those named in `after` have ended."""

    lane: str
    seconds: float                                 # while no other lane works
    kind: str                                      # DRAFT, VERIFY or VERDICT
    after: tuple[int, ...] = ()                    # places of earlier tasks
    round: int = 0
    useful: float = 1.0                            # share whose result is used; the rest is rolled back
    until: int | None = None                       # the task whose end cancels this one


class LaneInterval(NamedTuple):
    """What a lane did from `start` to `end`, in seconds."""

    lane: str
    start: float
    end: float
    kind: str                                      # one of KINDS
    round: int


class LaneTotals(NamedTuple):
    """Seconds of one lane; they add up to the seconds of the whole simulation."""

    useful: float                                  # work whose result was used
    rolled_back: float                             # work whose result was dropped
    contention: float                              # added by lanes working at the same time
    waiting: float


@dataclass(frozen=True)
class Simulation:
    """A simulated schedule: intervals in order of their starts, gaps included, and totals by lane."""

    seconds: float
    tokens: int
    intervals: tuple[LaneInterval, ...]
    totals: Mapping[str, LaneTotals]

    @property
    def rate(self) -> float:
        """Tokens a second, simulated."""
        return self.tokens / self.seconds if self.seconds else 0.0


class ScheduleCosts(Protocol):
    """Seconds on a machine: of drafting so many tokens in so many branches, of a forward, of a verdict's delivery."""

    def draft(self, tokens: int, branches: int = 1) -> float: ...
    def forward(self, width: int) -> float: ...

    @property
    def verdict(self) -> float: ...


@dataclass(frozen=True)
class Calibration:
    """Seconds of a draft step, of a forward by its width in tokens, and of message, verdict and rollback together.

    `more` is the price of each further branch, in draft steps: 0 where a batch of branches costs what one costs, 1
    where they are drafted one after another. `drafts` are whole drafts by their tokens, branches included, where they
    were measured: a drafter that retrieves makes several tokens in a step, and every draft begins with reading what
    was emitted.
    """

    step: float = 1.0
    forwards: Mapping[int, float] | Callable[[int], float] | float = 1.0
    verdict: float = 0.0
    more: float = 1.0
    drafts: Mapping[int, float] = field(default_factory=dict)

    def draft(self, tokens: int, branches: int = 1) -> float:
        """Of so many tokens; where drafts were measured and none of so many, as the next longer one, else by steps."""
        longer = min((one for one in self.drafts if one >= tokens), default=None)
        if tokens and longer is not None:
            return self.drafts[longer]
        return self.step * tokens / max(1, branches) * (1 + self.more * (max(1, branches) - 1))

    def forward(self, width: int) -> float:
        """Of this width; of a mapping the next wider one that is known, else the widest."""
        if isinstance(self.forwards, Mapping):
            known = [one for one in sorted(self.forwards) if one >= width] or [max(self.forwards)]
            return self.forwards[known[0]]
        return self.forwards(width) if callable(self.forwards) else self.forwards


def simulate(tasks: Sequence[Task], kappa: float = 1.0, tokens: int = 0) -> Simulation:
    """Runs the tasks. `kappa` multiplies durations while two lanes or more work; `tokens` are those they write.

    Raises ValueError for a kappa below 1, and for tasks that wait for each other.
    """
    if kappa < 1:
        raise ValueError(f"contention makes nothing faster: kappa is at least 1, got {kappa}")
    run = Run(tasks)
    while run.queues:
        running = [queue[0] for queue in run.queues.values() if all(run.ended[i] for i in tasks[queue[0]].after)]
        if not running:
            raise ValueError("these tasks wait for each other")
        run.advance(running, kappa if len(running) > 1 else 1.0)
    return Simulation(run.now, tokens, tuple(sorted(run.intervals(), key=lambda one: (one.start, one.end))),
                      {lane: run.totals(lane) for lane in run.lanes})


class Run:
    """The state of a running simulation."""

    def __init__(self, tasks: Sequence[Task]):
        self.tasks, self.now = tasks, 0.0
        self.lanes = list(dict.fromkeys(task.lane for task in tasks))
        self.queues = {lane: deque(i for i, task in enumerate(tasks) if task.lane == lane) for lane in self.lanes}
        self.left = [task.seconds for task in tasks]
        self.ended = [False] * len(tasks)
        self.spans: dict[int, tuple[float, float]] = {}
        self.cancels: dict[int, list[int]] = {}
        for i, task in enumerate(tasks):
            if task.until is not None:
                self.cancels.setdefault(task.until, []).append(i)

    def advance(self, running: Sequence[int], slower: float) -> None:
        """To the next end of a running task."""
        done = min(self.left[i] for i in running)
        begun, self.now = self.now, self.now + done * slower
        for i in running:
            self.spans[i] = (self.spans.get(i, (begun, begun))[0], self.now)
            self.left[i] -= done
        for i in running:
            if self.left[i] <= TINY * self.tasks[i].seconds and not self.ended[i]:
                self.left[i] = 0.0
                self.end(i)

    def end(self, i: int) -> None:
        """Takes a task, and those that it cancels, off their lanes."""
        for task in (i, *self.cancels.get(i, ())):
            if not self.ended[task]:
                self.ended[task] = True
                self.queues[self.tasks[task].lane].remove(task)
        self.queues = {lane: queue for lane, queue in self.queues.items() if queue}

    def work(self, i: int) -> tuple[float, float]:
        """Seconds of a task whose result was used, and rolled back; of a cancelled one nothing is used."""
        task, done = self.tasks[i], self.tasks[i].seconds - self.left[i]
        useful = 0.0 if task.until is not None and task.until in self.spans else done * task.useful
        return useful, done - useful

    def intervals(self) -> Iterable[LaneInterval]:
        """What lanes did and, between that, their waiting; a task's rolled-back part is drawn after its useful part."""
        for lane in self.lanes:
            free = 0.0
            for i in sorted((i for i in self.spans if self.tasks[i].lane == lane), key=lambda i: self.spans[i]):
                (start, end), (useful, lost), task = self.spans[i], self.work(i), self.tasks[i]
                if start > free + TINY:
                    yield LaneInterval(lane, free, start, WAIT, task.round)
                split = end - (end - start) * (lost / (useful + lost) if useful + lost else 0.0)
                parts = ((start, split, task.kind), (split, end, ROLLED_BACK))
                yield from (LaneInterval(lane, *part, task.round) for part in parts if part[1] > part[0])
                free = end
            if self.now > free + TINY:
                yield LaneInterval(lane, free, self.now, WAIT, max(task.round for task in self.tasks))

    def totals(self, lane: str) -> LaneTotals:
        own = [i for i in self.spans if self.tasks[i].lane == lane]
        useful, lost = (sum(self.work(i)[part] for i in own) for part in (0, 1))
        busy = sum(self.spans[i][1] - self.spans[i][0] for i in own)
        return LaneTotals(useful, lost, busy - useful - lost, self.now - busy)
