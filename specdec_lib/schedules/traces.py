"""Traces of rounds for the simulator: read from a decode's rounds, or drawn with independent acceptance.

A trace says in tokens what every round drafted, before and beside the target's forward, how wide that forward was, and
how much of the draft came to be used. `tasks` turns it into work for two lanes with one barrier a round: PEARL's
schedule, its ablations, branches, and serial speculation. `pipeline_trace` reads the rounds of PPSD's pipeline, which
have the same barrier and other counts; `pipeline_tasks` is that pipeline as the paper draws it, token by token.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from specdec_lib.schedules.simulate import (
    DRAFT,
    DRAFTER,
    TARGET,
    VERDICT,
    VERIFY,
    ScheduleCosts,
    Simulation,
    Task,
    simulate,
)
from specdec_lib.types import Round


class RoundCounts(Protocol):
    """What a trace reads of a logged round: a `measure.Row` has it."""

    @property
    def drafted(self) -> int: ...                  # nodes submitted, first new tokens included
    @property
    def accepted(self) -> int: ...
    @property
    def emitted(self) -> int: ...
    @property
    def depth(self) -> int: ...                    # longest path submitted
    @property
    def ahead(self) -> int | None: ...             # tokens drafted beside the forward; None: serial
    @property
    def branches(self) -> int | None: ...          # of them first tokens
    @property
    def discarded(self) -> int | None: ...         # of those submitted or drafted, useless after this verdict


class LoggedRound(NamedTuple):
    """The counts of one round."""

    drafted: int
    accepted: int
    emitted: int
    depth: int
    ahead: int | None = None
    branches: int | None = None
    discarded: int | None = None


class DraftWork(NamedTuple):
    """Tokens that a drafter made in one go, in so many branches, and how many of them were emitted."""

    tokens: int = 0
    branches: int = 1
    useful: int = 0


class TraceRound(NamedTuple):
    """One round: what was drafted before the forward and beside it, the forward's width, and the tokens emitted."""

    before: DraftWork
    beside: DraftWork
    width: int
    emitted: int


def logged(round: Round) -> LoggedRound:
    """The counts of a round of a decode."""
    return LoggedRound(len(round.draft), len(round.verdict.path), len(round.verdict.tokens), round.draft.depth,
                       *(round.ahead or ())[:3])


def pending(row: RoundCounts) -> int:
    """Nodes submitted that were drafted before this round; all of a serial round."""
    return row.drafted - (row.branches or 0)


def left_pending(row: RoundCounts) -> int:
    """Tokens of this round's new draft that are pending in the next one: neither accepted yet nor discarded."""
    return 0 if row.ahead is None else pending(row) + row.ahead - (row.discarded or 0) - row.accepted


def head_accepted(row: RoundCounts) -> bool:
    """Whether the verdict ends with a first token of this round's new draft."""
    return left_pending(row) > 0 or (bool(row.branches) and row.accepted == row.depth > 0)


def pending_accepted(row: RoundCounts) -> int:
    """Accepted tokens of those that were drafted before this round."""
    return min(row.accepted, row.depth - bool(row.branches))


def trace(rows: Sequence[RoundCounts]) -> list[TraceRound]:
    """The rounds of one decode in order. What was pending in the first one was drafted during the prefill: not timed.

    First tokens of a new draft are tested against a row that the forward has anyhow, so they do not widen it.
    """
    out = []
    for place, row in enumerate(rows):
        carried = row.ahead is not None and (place == 0 or left_pending(rows[place - 1]) > 0)
        before = DraftWork() if carried else DraftWork(pending(row), 1, pending_accepted(row))
        after = rows[place + 1] if place + 1 < len(rows) and left_pending(row) > 0 else None
        useful = head_accepted(row) + (pending_accepted(after) if after else 0)
        beside = DraftWork(row.ahead or 0, max(1, row.branches or 1), min(useful, row.ahead or 0))
        out.append(TraceRound(before, beside, 1 + pending(row), row.emitted))
    return out


def guided_trace(rows: Sequence[RoundCounts]) -> list[TraceRound]:
    """The same beside a guide (`overlap.Overlap`): its nodes are drafted by nobody, and all others beside a forward."""
    return [one._replace(before=DraftWork()) for one in trace(rows)]


def pipeline_trace(rows: Sequence[RoundCounts]) -> list[TraceRound]:
    """The rounds of one decode in `schedules.pipeline`, whose first stage is the drafter and whose second the target.

    A round takes one row through the second stage and tests the oldest drawn token. If none is under way, the first
    stage draws it before; it draws `ahead` more beside. A rejection empties the pipeline. The token that is under way
    in the first round was drawn during the prefill: not timed.
    """
    used, before = [[0, 0] for _ in rows], []                  # tokens that were emitted, drawn before and beside
    waiting = [([0, 0], 0)]                        # what is under way: the counts of the round that drew it, and which
    for counts, row in zip(used, rows, strict=True):
        before.append(int(not waiting))
        waiting += [(counts, 0)] * before[-1] + [(counts, 1)] * (row.ahead or 0)
        if row.accepted:
            owner, kind = waiting.pop(0)
            owner[kind] += 1
        else:
            waiting = []
    return [TraceRound(DraftWork(first, 1, counts[0]), DraftWork(row.ahead or 0, 1, counts[1]), 1, row.emitted)
            for row, first, counts in zip(rows, before, used, strict=True)]


TraceReader = Callable[[Sequence[RoundCounts]], list[TraceRound]]


def tasks(rounds: Iterable[TraceRound], costs: ScheduleCosts) -> list[Task]:
    """Work for the drafter and the target: in each round the target waits for what is drafted before its forward, and
    the verdict for the forward and for what is drafted beside it; the next round waits for the verdict."""
    out: list[Task] = []
    barrier: tuple[int, ...] = ()
    for number, one in enumerate(rounds):
        ready = barrier
        if one.before.tokens:
            out.append(draft_task(one.before, costs, ready, number))
            ready = (len(out) - 1,)
        beside: tuple[int, ...] = ()
        if one.beside.tokens:
            beside = (len(out),)
            out.append(draft_task(one.beside, costs, ready, number))
        out.append(Task(TARGET, costs.forward(one.width), VERIFY, ready, number))
        out.append(Task(TARGET, costs.verdict, VERDICT, (len(out) - 1, *beside), number))
        barrier = (len(out) - 1,)
    return out


def draft_task(work: DraftWork, costs: ScheduleCosts, after: tuple[int, ...], number: int) -> Task:
    return Task(DRAFTER, costs.draft(work.tokens, work.branches), DRAFT, after, number, work.useful / work.tokens)


def in_turn(rounds: Iterable[TraceRound]) -> list[TraceRound]:
    """The same rounds with everything drafted before the forward: how one process without a worker runs them."""
    return [one._replace(before=DraftWork(one.before.tokens + one.beside.tokens, one.beside.branches,
                                          one.before.useful + one.beside.useful), beside=DraftWork())
            for one in rounds]


def replay(rows: Sequence[RoundCounts], costs: ScheduleCosts, kappa: float = 1.0, parallel: bool = True,
           read: TraceReader = trace) -> Simulation:
    """A logged decode in simulated time; `parallel` False runs the same rounds one after another."""
    rounds = read(rows)
    return simulate(tasks(rounds if parallel else in_turn(rounds), costs), kappa, sum(one.emitted for one in rounds))


# --- rounds drawn with independent acceptance ------------------------------------------------------------------------


def run_length(dice: random.Random, alpha: float, most: int) -> int:
    """How many of `most` tokens are accepted before the first rejection."""
    return next((n for n in range(most) if dice.random() >= alpha), most)


def serial_rounds(alpha: float, length: int, rounds: int, seed: int = 0) -> list[LoggedRound]:
    """Serial speculation: every round drafts `length` tokens, then verifies them."""
    dice, out = random.Random(seed), list[LoggedRound]()
    for _ in range(rounds):
        kept = run_length(dice, alpha, length)
        out.append(LoggedRound(length, kept, kept + 1, length))
    return out


def overlapped_rounds(alpha: float, length: int, rounds: int, seed: int = 0, *, branches: int = 1,
                      first: float | None = None, pre: bool = True, post: bool = True) -> list[LoggedRound]:
    """PEARL, with its ablations; several branches of `length` tokens each are SpecBranch and DuoDecoding.

    `first` is the probability that one of the first new tokens is the target's (None: alpha). Nothing is pending in
    the first round; without pre-verification its first draft counts as the prefill's.
    """
    dice, out = random.Random(seed), list[LoggedRound]()
    held = 0                                       # pending tokens
    for _ in range(rounds):
        held = length if not (pre or held) else held             # without pre-verification the first draft comes first
        kept = run_length(dice, alpha, held)
        drafts = post or not held
        passed = kept == held and drafts and dice.random() < (alpha if first is None else first)
        correction = not passed                    # or the bonus token of a verdict without a new draft
        heads = branches if drafts else 0
        after = length - 1 if passed else 0
        out.append(LoggedRound(held + heads, kept + passed, kept + passed + correction, held + bool(heads),
                               heads * length, heads, held + heads * length - kept - passed - after))
        held = after
    return out


def pipeline_tasks(accepted: Sequence[bool], layers: int, exit_layer: int, layer_seconds: float = 1.0) -> list[Task]:
    """PPSD: token by token through stages of `exit_layer` layers; an early exit proposes the next one after the first.

    `accepted[t]` says whether the exit's proposal after token t is the target's. If it is not, younger tokens in the
    stages are cancelled when token t leaves the last one, and the right token enters the first.
    """
    if not 0 < exit_layer <= layers:
        raise ValueError(f"the exit is one of {layers} layers, got {exit_layer}")
    ends = [*range(0, layers, exit_layer), layers]
    sizes, out = [end - start for start, end in pairwise(ends)], list[Task]()
    ready: tuple[int, ...] = ()
    for number, right in enumerate(accepted):
        stages = list(staged(sizes, layer_seconds, ready, number, len(out)))
        out += stages
        last = len(out) - 1
        ready = (last - len(sizes) + 1,) if right else (last,)
        if not right:
            wrong = (last - len(sizes) + 1,)
            for _ in range(len(sizes) - 1):        # each younger token enters when the one before leaves the first
                first = len(out)
                out += [task._replace(until=last) for task in staged(sizes, layer_seconds, wrong, number, first)]
                wrong = (first,)
    return out


def staged(sizes: Sequence[int], layer_seconds: float, ready: tuple[int, ...], number: int, at: int) -> Iterator[Task]:
    """One token through all stages: a drafting one and verifying ones; its first task stands at place `at`."""
    for stage, size in enumerate(sizes):
        yield Task(f"stage {stage + 1}", size * layer_seconds, VERIFY if stage else DRAFT,
                   (at + stage - 1,) if stage else ready, number)


def pipelined(alpha: float, layers: int, exit_layer: int, tokens: int, seed: int = 0, layer_seconds: float = 1.0,
              kappa: float = 1.0) -> Simulation:
    """PPSD with independent acceptance, simulated; it writes `tokens` tokens."""
    dice = random.Random(seed)
    accepted = [dice.random() < alpha for _ in range(tokens)]
    return simulate(pipeline_tasks(accepted, layers, exit_layer, layer_seconds), kappa, tokens)
