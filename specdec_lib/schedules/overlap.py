"""Overlap: a worker drafts the next tokens while the target verifies the last ones (PEARL's two modes).

Source: PEARL (Liu et al. 2024, arXiv 2408.11850). The drafted tokens that the target has not yet seen are *pending*.
Each round the target scores the pending tokens in one forward, and the worker, which assumes that all of them will be
accepted, drafts what follows. The forward's last row is the distribution of the first token of that new draft, so
this token is tested in the same round, one forward before its own row exists.

- No token pending (PEARL's pre-verify): the forward tests the first new token alone.
- Tokens pending (post-verify): it tests them and the first new token. No bonus token is drawn: the new draft holds it.

If everything is accepted, the rest of the new draft is pending next. Otherwise the rule's correction is emitted, the
new draft is discarded, and nothing is pending. First tokens of the new draft may be several (branches): the rule tests
them as siblings, and the subtree of the accepted one goes on. A `guide` proposes a second continuation of the verified
text, which the same forward scores as a branch beside the pending tokens: after a rejection it may go on where the
correction left them. What the new draft holds below the emitted tokens stays pending, whichever branch they came from.
Lossless with every lossless rule, because each token is tested once, by the rule, against the target's row for exactly
its prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from time import perf_counter
from typing import Any

from specdec_lib.lazy import torch
from specdec_lib.loop import logprobs
from specdec_lib.schedules.workers import Drafted, DraftWorker, Workers
from specdec_lib.scores import Categorical, RowStats, Scores, TokenStats
from specdec_lib.speculate import refuse_other, refuse_verdict
from specdec_lib.trees import below, merged, nodes_along, with_children
from specdec_lib.types import (
    LM,
    NO_DICE,
    ROOT,
    Budget,
    Draft,
    DraftedAhead,
    Method,
    RandomNumbers,
    Round,
    Seconds,
    Session,
    Verdict,
    What,
)

UNSEEN = -1                                        # the token after a row that no forward has computed
Keep = Callable[[Session, Draft, int], Draft]      # which part of a draft stays pending after the verified session


def keep_all(session: Session, draft: Draft, longest: int) -> Draft:
    return draft


class WithoutLastRows:
    """Scores of the pending tokens, with rows of the new first tokens that say that nothing is known after them."""

    def __init__(self, scores: Scores, unseen: int):
        self.scores, self.known, self.unseen = scores, len(scores), unseen

    def __len__(self) -> int:
        return self.known + self.unseen

    @property
    def logits(self) -> Any:
        return self.scores.logits

    @property
    def best(self) -> tuple[int, ...]:
        return self.scores.best + (UNSEEN,) * self.unseen

    def distribution(self, row: int, sampling: Any = None) -> Categorical:
        return Categorical.point_mass(UNSEEN) if row >= self.known else self.scores.distribution(row, sampling)

    def logit(self, row: int, token: int) -> float:
        return self.scores.logit(row, token)

    def stats(self, row: int, token: int) -> TokenStats:
        return self.scores.stats(row, token)

    def row_stats(self, rows: tuple[int, ...] = (), k: int = 8) -> RowStats:
        known = self.scores.row_stats(rows, k)
        shape = (self.unseen, known.ids.shape[1])
        return RowStats(torch.cat([known.ids, known.ids.new_full(shape, UNSEEN)]),
                        torch.cat([known.logits, known.logits.new_zeros(shape)]), known.rows, known.lse, known.entropy)


@dataclass(frozen=True)
class Flight:
    """What is under way between two rounds: the pending tokens, as a chain or a tree, and the budget they had."""

    pending: Draft = field(default_factory=Draft)
    budget: Budget = Budget()

    @property
    def tip(self) -> int:
        """The last pending token, which new drafts follow: the deepest node, and the first of several."""
        depths = self.pending.depths
        return depths.index(max(depths)) if depths else ROOT

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens down to the tip."""
        return tuple(self.pending.tokens[node] for node in self.pending.path(self.tip))


@dataclass(frozen=True)
class Overlap:
    """The schedule. `pre` and `post` switch PEARL's two halves off; `keep` cuts what stays pending.

    `keep` sees verified tokens, the distributions that drafted ones were drawn from, and the longest path that the
    budget allowed this draft. A rule that reads the drawn tokens themselves would break the promise of `q`. So would
    one that reads how long the draft became, since what a token leads to may have stopped it.
    """

    workers: Workers = Workers()
    pre: bool = True                               # test the first new token while nothing is pending
    post: bool = True                              # draft while pending tokens are verified
    keep: Keep = keep_all
    guide: What | None = None                      # a second continuation of the verified text, asked in this thread
    reach: int = 8                                 # its longest, in tokens

    def __call__(self, session: Session, target: LM, method: Method, dice: RandomNumbers = NO_DICE
                 ) -> Iterator[Session]:
        """Yields the session after every forward of the target; the first draft is made during its prefill.

        What it takes beyond that, the worker's start included, is part of the first round, as in serial methods.
        """
        start = perf_counter()
        with self.workers.open(method.what, session) as worker:
            budget = self.ask(worker, session, Flight(), method, dice.fork("prefill"))
            reading = perf_counter()
            target.prefill(session.tokens[:-1])
            session = replace(session, prefill=perf_counter() - reading)
            flight = Flight(self.keep(session, worker.result().draft, budget.depth), budget)
            late = perf_counter() - start - session.prefill
            while not session.done:
                session, flight = self.round(session, flight, target, method, worker, dice)
                session, late = charged(session, late), 0.0
                yield session

    def ask(self, worker: DraftWorker, session: Session, flight: Flight, method: Method, own: RandomNumbers) -> Budget:
        """Starts the draft that follows the pending tokens and returns its budget."""
        budget = budget_after(session, flight, method, own)
        worker.start(replace(ahead_of(session, flight), rounds=()), budget, own.fork("what"))
        return budget

    def round(self, session: Session, flight: Flight, target: LM, method: Method, worker: DraftWorker,
              dice: RandomNumbers) -> tuple[Session, Flight]:
        """One forward of the target, and what the worker drafts meanwhile."""
        own, start = dice.fork(len(session.rounds)), perf_counter()
        first = Drafted(Draft(), 0.0)              # what the worker drafts while the target waits
        if not self.pre and not len(flight.pending):
            budget = self.ask(worker, session, flight, method, own.fork("first"))
            first = worker.result()
            flight = Flight(first.draft, budget)
        asked = perf_counter()
        tree = self.submitted(session, flight, own)
        planning = perf_counter()
        alone = first.seconds + planning - asked
        beside = self.post or not len(flight.pending)
        budget = self.ask(worker, session, flight, method, own) if beside else Budget()
        begun = perf_counter()
        scores = target(session.tokens, tree)
        scored = perf_counter()
        new = worker.result() if beside else Drafted(Draft(), 0.0)
        waited = perf_counter()
        draft, verdict, seen = verify(session, flight, tree, new.draft, scores, method, dice)
        rows = (0, *(node + 1 for node in verdict.path))[:len(verdict.tokens)]
        row_stats = seen.row_stats(rows)
        tested = flight.budget if len(flight.pending) else budget
        done = Round(tested, draft.bare(), row_stats, verdict, logprobs(scores, row_stats, verdict))
        after = self.what_stays(session, flight, new.draft, budget, verdict)
        inline = 0.0 if worker.parallel else new.seconds
        seconds = Seconds(begun - planning - inline, alone + new.seconds, scored - begun,
                          perf_counter() - waited, perf_counter() - start if worker.parallel else None)
        ahead = account(flight, new.draft, verdict, after)._replace(
            made=len(first.draft) + len(new.draft), scored=1 + len(tree), asked=budget,
            levels=first.draft.depth + new.draft.depth)
        return session.after(replace(done, seconds=seconds, ahead=ahead)), after

    def submitted(self, session: Session, flight: Flight, dice: RandomNumbers) -> Draft:
        """What the forward scores: the pending tokens, and after them in the same tree what the guide has more."""
        budget = Budget(self.reach if self.guide else 0).within(session)
        if not (self.guide and budget.depth):
            return flight.pending
        return merged(flight.pending, self.guide(session, budget, dice.fork("guide")))

    def what_stays(self, session: Session, flight: Flight, new: Draft, budget: Budget, verdict: Verdict) -> Flight:
        """The flight after this verdict: what the new draft holds below the emitted tokens, or nothing."""
        path = emitted_along(flight, new, verdict)
        if not path:
            return Flight(budget=budget)
        emitted = verdict.tokens
        verified = replace(session, tokens=session.tokens + emitted, remaining=session.remaining - len(emitted))
        return Flight(self.keep(verified, below(new, path[-1]), budget.depth - len(path)), budget)


def charged(session: Session, late: float) -> Session:
    """The session whose last round took `late` seconds more, of a draft that was made before it."""
    *before, last = session.rounds
    one = last.seconds
    more = one._replace(what=one.what + late) if one.wall is None else one._replace(wall=one.wall + late)
    return replace(session, rounds=(*before, replace(last, seconds=more))) if late else session


def ahead_of(session: Session, flight: Flight) -> Session:
    """The session as it will be if the target accepts every pending token."""
    tokens = flight.tokens
    return replace(session, tokens=session.tokens + tokens, remaining=session.remaining - len(tokens))


def budget_after(session: Session, flight: Flight, method: Method, dice: RandomNumbers) -> Budget:
    """The policy's budget for the draft after the pending tokens: no longer than what may still be emitted."""
    ahead = ahead_of(session, flight)
    if ahead.done:
        return Budget()
    return method.when(ahead, dice.fork("when")).within(replace(ahead, remaining=ahead.remaining + 1))


def verify(session: Session, flight: Flight, tree: Draft, new: Draft, scores: Scores, method: Method,
           dice: RandomNumbers) -> tuple[Draft, Verdict, Scores]:
    """The draft that is tested, the scored tree and the new first tokens, the rule's verdict on it, and its scores."""
    draft = with_children(tree, flight.tip, first_tokens(tree, flight.tip, new))
    heads = len(draft) - len(tree)
    seen: Any = WithoutLastRows(scores, heads) if heads else scores
    verdict = method.how(session, draft, seen, dice)
    refuse_other(verdict, Verdict, method.how)
    if verdict.tokens[-1:] == (UNSEEN,):
        verdict = Verdict(verdict.path, verdict.tokens[:-1])
    refuse_verdict(verdict, draft, method.how)
    return draft, verdict.until(session), seen


def first_tokens(tree: Draft, tip: int, new: Draft) -> Draft:
    """The first tokens of the new draft that the guide has not put below the tree's tip already.

    That a drawn one is none of the guide's is known by now, so it is tested as drawn from `q` without those.
    """
    heads = new.keep(new.children.get(ROOT, ()))
    there = [tree.tokens[node] for node in tree.children.get(tip, ())]
    if not there:
        return heads
    heads = heads.keep(tuple(node for node in range(len(heads)) if heads.tokens[node] not in there))
    return replace(heads, q=tuple(None if q is None else reduce(lambda q, token: q.residual(None, token), there, q)
                                  for q in heads.q))


def emitted_along(flight: Flight, new: Draft, verdict: Verdict) -> tuple[int, ...]:
    """The nodes of the new draft that hold every emitted token after the pending ones; empty where it says others."""
    pending = flight.tokens
    if verdict.tokens[:len(pending)] != pending:
        return ()
    rest = verdict.tokens[len(pending):]
    path = nodes_along(new, rest)
    return path if len(path) == len(rest) else ()


def account(flight: Flight, new: Draft, verdict: Verdict, after: Flight) -> DraftedAhead:
    """Tokens drafted ahead in this round, branches, and those of both drafts that nobody will need.

    What the guide has more is not counted: no model drafted it.
    """
    kept = sum(node < len(flight.pending) for node in verdict.path) + len(emitted_along(flight, new, verdict))
    discarded = len(flight.pending) + len(new) - kept - len(after.pending)
    return DraftedAhead(len(new), len(new.children.get(ROOT, ())), discarded, kept=kept)
