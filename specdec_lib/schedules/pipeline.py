"""Pipeline: the target's layers as two stages of a pipeline, filled by the early exit between them (PPSD).

Source: PPSD (arXiv 2509.19368). A worker holds the layers up to an exit and the exit's head, this process the layers
above. When a token leaves the worker's layers, the exit draws the next token, which enters these layers at once, while
the hidden state of the first goes on upwards. What leaves the last layer gives the target's distribution, and the rule
tests the one token that the exit drew there:

- accepted: it is emitted, and its own hidden state has left the worker meanwhile;
- rejected: the correction is emitted, and every younger token is discarded. The correction enters the first stage.

So each round is one row through the layers above, there is never a forward over several drafted tokens, and no bonus
token. Only tokens of the text reach the second stage, so its cache needs no rollback. The budget's depth is how many
drafted tokens may be under way: the worker has computed all of them but the last. Nothing is drawn behind one at which
its stop rule fires. A decode ends with none of them left.
Tokens do not depend on what is faster, because the verdict waits for what the worker was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, cast

from specdec_lib.lazy import torch
from specdec_lib.loop import logprobs
from specdec_lib.schedules.overlap import Flight, ahead_of, charged, verify
from specdec_lib.schedules.workers import Drafted, DraftWorker, Workers
from specdec_lib.trees import below, grow, with_notes
from specdec_lib.types import (
    LM,
    NO_DICE,
    ROOT,
    Budget,
    Draft,
    DraftedAhead,
    Method,
    RandomNumbers,
    Refusal,
    Round,
    Seconds,
    Session,
)

if TYPE_CHECKING:
    from torch import Tensor

    from specdec_lib.models.llama.decoder import Transformer

STATES = "states"                                  # notes of a first stage's draft: hidden states that left the stage
READING = "reading"                                # and the seconds in which it read tokens of the text before it drew


@dataclass(frozen=True)
class FirstStage:
    """The worker's part: `model` is an exit of the target on a cache of its own (`models/llama/stages.py`).

    Draws a chain after the session's tokens. The note STATES holds the hidden states [rows, hidden] of every row that
    has left the stage since the last call: the last token of the session and all drawn tokens but the last, and in
    the first call of a decode the whole prompt. Raises Refusal for an exit with no layer above it.
    """

    model: Transformer

    def __post_init__(self):
        if self.model.depth == self.model.layers:
            raise Refusal(f"a pipeline needs layers above the exit, and all {self.model.layers} lie below it")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        from specdec_lib.models.llama.stages import leaving_states

        known = len(session.tokens) - 1
        start = perf_counter()
        self.model.prefill(session.tokens[:known])             # in the chunks of a plain decode
        reading = perf_counter() - start
        draft = grow(session, budget, dice, lambda draft: self.model(session.tokens, draft), "early-exit")
        first = 0 if known < session.prompt else known
        return with_notes(draft, **{STATES: leaving_states(self.model, first), READING: reading})


class UnderWay(NamedTuple):
    """What is in the pipeline between two rounds: drawn tokens, a chain, and the hidden states below the second stage.

    `states[0]` belongs to the last emitted token, `states[i]` to drawn token i - 1; the last drawn one has none yet.
    """

    drawn: Draft
    states: Tensor

    def joined(self, new: Draft) -> UnderWay:
        """The same with what the worker has added."""
        one = self.drawn
        tokens = one.tokens + new.tokens
        chain = Draft(tokens, tuple(range(ROOT, len(tokens) - 1)), one.q + new.q, one.stats + new.stats,
                      one.source + new.source, one.confidence + new.confidence)
        return UnderWay(chain, torch.cat((self.states, new.notes[STATES])))

    def after(self, accepted: bool) -> UnderWay:
        """What stays when the first drawn token was emitted; nothing when it was rejected."""
        if not accepted:
            return UnderWay(Draft(), self.states[:0])
        return UnderWay(below(self.drawn, 0), self.states[1:])

    @staticmethod
    def of(new: Draft) -> UnderWay:
        return UnderWay(Draft(), new.notes[STATES][:0]).joined(new)


@dataclass(frozen=True)
class Pipeline:
    """The schedule of two stages that are split above layer `layer`; the method's *what* is a `FirstStage`."""

    layer: int
    workers: Workers = Workers()

    def __call__(self, session: Session, target: LM, method: Method, dice: RandomNumbers = NO_DICE
                 ) -> Iterator[Session]:
        """Yields the session after every token; its prefill is the prompt in both stages, in turn.

        The worker's start is part of the first round.
        """
        lm, start = cast("Transformer", target), perf_counter()
        with self.workers.open(method.what, session) as worker:
            first = draw(worker, session, Draft(), Budget(1), dice.fork("prefill")).draft
            under, rising = UnderWay.of(first), perf_counter()
            self.rise(lm, session.tokens[:-1], under.states[:-1])
            lm.prefill(session.tokens[:-1])
            under = under._replace(states=under.states[-1:])
            session = replace(session, prefill=first.notes.get(READING, 0.0) + perf_counter() - rising)
            late = perf_counter() - start - session.prefill
            while not session.done:
                session, under = self.round(session, under, lm, method, worker, dice)
                session, late = charged(session, late), 0.0
                yield session

    def rise(self, target: Transformer, tokens: tuple[int, ...], states: Tensor) -> None:
        """Hands the hidden states of the last of these tokens to the second stage."""
        from specdec_lib.models.llama.stages import enter

        if len(states):
            enter(target, tokens, states, self.layer)

    def round(self, session: Session, under: UnderWay, target: Transformer, method: Method, worker: DraftWorker,
              dice: RandomNumbers) -> tuple[Session, UnderWay]:
        """One row through the second stage, and what the worker adds to the pipeline meanwhile."""
        own, start = dice.fork(len(session.rounds)), perf_counter()
        budget = budget_of(session, method, own)
        planned, alone, first = perf_counter(), 0.0, 0         # seconds in which the second stage waited for tokens
        if not len(under.drawn):
            drawn = draw(worker, session, Draft(), Budget(1), own)
            under, alone, first = UnderWay.of(drawn.draft), drawn.seconds, len(drawn.draft)
        more = room(session, budget, under.drawn)
        if more:
            ask(worker, session, under.drawn, replace(budget, depth=more), own)
        begun = perf_counter()
        self.rise(target, session.tokens, under.states[:1])
        scores = target(session.tokens, Draft())
        scored = perf_counter()
        new = worker.result() if more else Drafted(Draft(), 0.0)
        waited = perf_counter()
        draft, verdict, seen = verify(session, Flight(), Draft(), under.drawn, scores, method, dice)
        under = under.joined(new.draft) if more else under
        row_stats = seen.row_stats((0,))
        done = Round(budget, draft.bare(), row_stats, verdict, logprobs(scores, row_stats, verdict),
                     ahead=DraftedAhead(len(new.draft), min(1, len(new.draft)),
                                        0 if verdict.path else len(under.drawn), first + len(new.draft), 1))
        seconds = Seconds(planned - start, alone + new.seconds, scored - begun, perf_counter() - waited,
                          perf_counter() - start if worker.parallel else None)
        return session.after(replace(done, seconds=seconds)), under.after(bool(verdict.path))


def budget_of(session: Session, method: Method, own: RandomNumbers) -> Budget:
    """The policy's budget: at least one token, and no more than may still be emitted."""
    budget = method.when(session, own.fork("when"))
    return replace(budget, depth=max(1, min(budget.depth, session.remaining)))


def room(session: Session, budget: Budget, drawn: Draft) -> int:
    """How many tokens more may be under way; none behind an end token, or one at which the stop rule fires."""
    over = drawn.tokens[-1] in session.end or (budget.stop and budget.stop(drawn.stats))
    return 0 if over else max(0, budget.depth - len(drawn))


def ask(worker: DraftWorker, session: Session, drawn: Draft, budget: Budget, own: RandomNumbers) -> None:
    """Starts the worker on what follows the drawn tokens."""
    worker.start(replace(ahead_of(session, Flight(drawn)), rounds=()), budget, own.fork("what"))


def draw(worker: DraftWorker, session: Session, drawn: Draft, budget: Budget, own: RandomNumbers) -> Drafted:
    """What the worker draws behind the drawn tokens, while this process waits."""
    ask(worker, session, drawn, budget, own)
    return worker.result()
