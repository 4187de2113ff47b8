"""The loop: rounds of when, what, target and how, one after another; a method may bring another schedule.

Knows nothing about models, caches, drafters or rules. Plain decoding is the budget of depth 0.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from operator import index
from time import perf_counter
from types import MappingProxyType
from typing import Any

from specdec_lib.scores import RowStats, Scores
from specdec_lib.speculate import answered, refuse_other, speculation
from specdec_lib.types import (
    LM,
    NO_DICE,
    Budget,
    How,
    Method,
    RandomNumbers,
    Refusal,
    Round,
    Schedule,
    Seconds,
    Session,
    Verdict,
    What,
    When,
)

NO_MEMORY: Mapping[str, Any] = MappingProxyType({})


def decode(prompt: Sequence[int], target: LM, when: When, what: What, how: How, schedule: Schedule | None = None, *,
           max_new_tokens: int = 128, end: frozenset[int] = frozenset(), sampling=None, id: str = "",
           dice: RandomNumbers = NO_DICE, memory: Mapping[str, Any] = NO_MEMORY,
           source: Sequence[int] = ()) -> Iterator[Session]:
    """Yields the session after every round, until an end token is emitted or `max_new_tokens` are.

    A `Method` unpacks into the parameters from `when` to `schedule`. `sampling` is a `Sampling`, None is greedy; above
    temperature 0 it needs `dice=Dice(seed)`. Raises Refusal for an empty prompt, one that does not fit the target's
    context or vocabulary, or no tokens to generate. `source` is what an encoder-decoder was bound to.
    """
    if not hasattr(sampling, "greedy") and sampling is not None:
        raise Refusal(f"sampling is a Sampling, such as Sampling(temperature=0.8), or None, got {sampling!r}")
    if not hasattr(dice, "fork"):
        raise Refusal(f"dice is a Dice, such as Dice(seed), got {dice!r}")
    session = begin(prompt, max_new_tokens, end, sampling, id, target.context, source, why_context(target))
    largest, vocab = max(session.tokens), getattr(target, "vocab", None)
    if vocab is not None and largest >= vocab:
        raise Refusal(f"the prompt holds token {largest}, and the target has the {vocab} tokens from 0 on:"
                      " encode it with the target's own tokenizer")
    return run(session, target, Method(when, what, how, schedule), dice, memory)


def run(session: Session, target: LM, method: Method, dice: RandomNumbers = NO_DICE,
        memory: Mapping[str, Any] = NO_MEMORY) -> Iterator[Session]:
    """Yields the session after every round of the method's schedule, by default the serial `rounds`.

    When the decode ends or is abandoned, `finish(session)` is called once on every value in `memory`.
    """
    try:
        for now in (method.schedule or rounds)(session, target, method, dice):
            session = now
            yield session
    finally:
        finish(memory, session)


def finish(memory: Mapping[str, Any], session: Session) -> None:
    """Tells everything in a kit's memory, once, that this decode is over."""
    for one in memory.values():
        one.finish(session)


def begin(prompt: Sequence[int], max_new_tokens: int, end: frozenset[int] = frozenset(), sampling=None, id: str = "",
          context: int | None = None, source: Sequence[int] = (), why: str = "") -> Session:
    """A session before its first round, with its input checked; `why` the context ends is from `why_context`."""
    if len(prompt) == 0:
        raise Refusal("the prompt is empty: give at least one token")
    if isinstance(prompt, str):
        raise Refusal("a prompt holds token ids and this one is text: encode it, as with text.encode_chat([prompt])")
    if not hasattr(prompt[0], "__index__") or getattr(prompt[0], "ndim", 0):
        raise Refusal("one prompt at a time: give the token ids of one sequence, a batch above 1 is not supported")
    try:
        ids = tuple(map(index, prompt))
    except TypeError:
        raise Refusal("a prompt holds token ids, which are whole numbers") from None
    if min(ids) < 0:
        raise Refusal(f"a prompt holds token ids, from 0 on, got {min(ids)}: leave padding out")
    if not hasattr(max_new_tokens, "__index__") or max_new_tokens < 1:
        raise Refusal(f"max_new_tokens must be a whole number, at least 1, got {max_new_tokens}")
    if context is not None and len(prompt) >= context:
        raise Refusal(f"the prompt {id or 'given'} has {len(prompt)} tokens and the target's context holds"
                      f" {context}{why}: shorten it, since nothing is cut silently")
    remaining = max_new_tokens if context is None else min(max_new_tokens, context - len(prompt))
    return Session(ids, len(prompt), remaining, frozenset(end), sampling, id,
                   source=tuple(int(token) for token in source))


def why_context(target: LM) -> str:
    """What a refusal adds where the context ends because positions change beyond it; "" elsewhere."""
    ends = getattr(target, "moves_after", None)
    return ("" if ends is None or ends != target.context else
            " (beyond it this model changes the angles of all positions, which drafts would disturb)")


def rounds(session: Session, target: LM, method: Method, dice: RandomNumbers = NO_DICE) -> Iterator[Session]:
    """Prefill with all prompt tokens but the last, then one session per round."""
    start = perf_counter()
    target.prefill(session.tokens[:-1])
    session = replace(session, prefill=perf_counter() - start)
    while not session.done:
        session = step(session, target, method, dice)
        yield session


def step(session: Session, target: LM, method: Method, dice: RandomNumbers = NO_DICE) -> Session:
    """One round: a budget, then one speculation with the target."""
    asking = round_of(session, method, dice, vocab=getattr(target, "vocab", None))
    return answered(asking, target(session.tokens, next(asking)))


def round_of(session: Session, method: Method, dice: RandomNumbers = NO_DICE,
             share: bool = False, vocab: int | None = None) -> Generator[Any, Any, Session]:
    """A round without its forward: yields the draft, is sent its scores and returns the session after the round.

    With `share`, a drafter that can leave its own forward to others yields what it asks for before that.
    """
    own = dice.fork(len(session.rounds))           # drafts may be redrawn at a position; the verdict's numbers are not
    start = perf_counter()
    budget = method.when(session, own.fork("when"))
    refuse_other(budget, Budget, method.when)
    budget = budget.within(session)
    planned = perf_counter()
    found = yield from speculation(session, budget, method.what, method.how, own.fork("what"), dice,
                                   share, vocab)
    verifying = perf_counter()
    row_stats = found.scores.row_stats((0, *(node + 1 for node in found.verdict.path))[:len(found.verdict.tokens)])
    likelihood = logprobs(found.scores, row_stats, found.verdict)
    round = Round(budget, found.draft.bare(), row_stats, found.verdict, likelihood)
    how = found.verifying + perf_counter() - verifying
    return session.after(replace(round, seconds=Seconds(planned - start, found.drafting, found.scoring, how)))


def logprobs(scores: Scores, row_stats: RowStats, verdict: Verdict) -> tuple[float, ...]:
    """Log-probability of each emitted token under the raw softmax of its row; Refusal where one is not a number."""
    out = tuple(scores.logit(row, token) - lse
                for row, token, lse in zip(row_stats.rows, verdict.tokens, row_stats.lse, strict=True))
    if any(map(isnan, out)):
        raise Refusal("the target's logits are not numbers (NaN or infinite): its weights are damaged or too large for"
                      " the dtype, fetch the model again or take --dtype float32")
    return out
