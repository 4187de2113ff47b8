"""The loop: when, what, target, how, and again. The serial schedule and nothing else.

Knows nothing about models, caches, drafters or rules. Plain decoding is the budget of depth 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import perf_counter

from specdec_lib.scores import Scores
from specdec_lib.types import LM, NO_DICE, Draft, How, Method, Refusal, Round, Seconds, Session, Verdict, What, When


def decode(prompt: Sequence[int], target: LM, when: When, what: What, how: How, *, max_new_tokens: int = 128,
           end: frozenset[int] = frozenset(), sampling=None, id: str = "", dice=NO_DICE) -> Iterator[Session]:
    """Yields the session after every round, until an end token is emitted or the room is used up.

    Raises Refusal for an empty prompt, one that does not fit the target's context, or no room for output.
    """
    session = begin(prompt, max_new_tokens, end, sampling, id, target.context)
    return rounds(session, target, Method(when, what, how), dice)


def begin(prompt: Sequence[int], max_new_tokens: int, end: frozenset[int] = frozenset(), sampling=None, id: str = "",
          context: int | None = None) -> Session:
    """A session before its first round, with its input checked."""
    if len(prompt) == 0:
        raise Refusal("the prompt is empty: give at least one token")
    if not hasattr(prompt[0], "__index__") or getattr(prompt[0], "ndim", 0):
        raise Refusal("one prompt at a time: give the token ids of one sequence, a batch above 1 is not supported")
    if max_new_tokens < 1:
        raise Refusal(f"max_new_tokens must be at least 1, got {max_new_tokens}")
    if context is not None and len(prompt) >= context:
        raise Refusal(f"the prompt {id or 'given'} has {len(prompt)} tokens and the target's context holds {context}:"
                      " shorten it, since nothing is cut silently")
    room = max_new_tokens if context is None else min(max_new_tokens, context - len(prompt))
    return Session(tuple(int(token) for token in prompt), len(prompt), room, frozenset(end), sampling, id)


def rounds(session: Session, target: LM, method: Method, dice=NO_DICE) -> Iterator[Session]:
    """Prefill with all prompt tokens but the last, then one session per round."""
    start = perf_counter()
    target.prefill(session.tokens[:-1])
    session = replace(session, prefill=perf_counter() - start)
    while not session.done:
        session = step(session, target, method, dice)
        yield session


def step(session: Session, target: LM, method: Method, dice=NO_DICE) -> Session:
    """One round: three questions, one forward."""
    own = dice.fork(len(session.rounds))           # drafts may be redrawn at a position; the verdict's coins are not
    t0 = perf_counter()
    budget = method.when(session, own.fork("when")).within(session)
    t1 = perf_counter()
    draft = method.what(session, budget, own.fork("what")) if budget.depth else Draft()
    t2 = perf_counter()
    scores = target(session.tokens, draft)
    t3 = perf_counter()
    verdict = method.how(session, draft, scores, dice).until(session)
    rows = (0, *(node + 1 for node in verdict.path))[:len(verdict.tokens)]
    row_stats = scores.row_stats(rows)
    seconds = Seconds(t1 - t0, t2 - t1, t3 - t2)
    round = Round(budget, draft.bare(), row_stats, verdict, logprobs(scores, row_stats, verdict), seconds)
    round = replace(round, seconds=seconds._replace(how=perf_counter() - t3))
    return session.after(round)


def logprobs(scores: Scores, row_stats, verdict: Verdict) -> tuple[float, ...]:
    """Log-probability of each emitted token under the raw softmax of its row."""
    return tuple(scores.logit(row, token) - lse
                 for row, token, lse in zip(row_stats.rows, verdict.tokens, row_stats.lse, strict=True))
