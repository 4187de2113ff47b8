"""One speculation: draft under a budget, score the draft with a model, verify it by a rule.

The loop speculates once a round with the target. A drafter may speculate too, with a model between drafter and target
(hierarchical drafting): `as_draft` hands what the middle model emitted to the next level. `speculation` leaves the
forward to its caller, who may score several sequences in one, and with `share` the drafter's forward as well. Knows no
schedule.
"""

from __future__ import annotations

from collections.abc import Generator
from time import perf_counter
from typing import Any, NamedTuple, TypeVar, cast

from specdec_lib.scores import Scores
from specdec_lib.types import LM, Budget, Draft, How, RandomNumbers, Session, SharingWhat, Verdict, What

Result = TypeVar("Result")


class Speculation(NamedTuple):
    """What one speculation came to; seconds of drafting, of the model and of verification, one after another."""

    draft: Draft
    scores: Scores
    verdict: Verdict                               # cut at the first end token and at what may still be emitted
    drafting: float
    scoring: float
    verifying: float


def speculate(session: Session, budget: Budget, lm: LM, what: What, how: How, dice: RandomNumbers,
              verdict_dice: RandomNumbers | None = None) -> Speculation:
    """Drafts with `what`, scores the draft in one forward of `lm` and verifies it with `how`.

    `dice` are the drafter's random numbers. `verdict_dice` are the rule's; by default a fork of `dice`, which an inner
    level needs: its verdict must not share random numbers with the target's. A budget of depth 0 drafts nothing.
    """
    asking = speculation(session, budget, what, how, dice, verdict_dice)
    return answered(asking, lm(session.tokens, next(asking)))


def speculation(session: Session, budget: Budget, what: What, how: How, dice: RandomNumbers,
                verdict_dice: RandomNumbers | None = None, share: bool = False) -> Generator[Any, Any, Speculation]:
    """`speculate` without its forward: yields the draft, is sent its scores and returns what came of it.

    With `share`, a drafter that can leave its forward to others (`types.SharingWhat`) is asked first: what it yields is
    yielded, and it is sent the answer. Seconds of waiting for that answer are not counted as drafting.
    """
    t0, waited, draft = perf_counter(), 0.0, Draft()
    if budget.depth and share and hasattr(what, "asking"):
        draft, waited = yield from shared_draft(cast(SharingWhat, what).asking(session, budget, dice))
    elif budget.depth:
        draft = what(session, budget, dice)
    t1 = perf_counter()
    scores = yield draft
    t2 = perf_counter()
    verdict = how(session, draft, scores, dice.fork("verdict") if verdict_dice is None else verdict_dice).until(session)
    return Speculation(draft, scores, verdict, t1 - t0 - waited, t2 - t1, perf_counter() - t2)


def shared_draft(asking: Generator[Any, Any, Draft]) -> Generator[Any, Any, tuple[Draft, float]]:
    """Passes on what a drafter asks for and what it is sent; returns its draft and the seconds in between."""
    waited = 0.0
    try:
        request = next(asking)
        while True:
            start = perf_counter()
            answer = yield request
            waited += perf_counter() - start
            request = asking.send(answer)
    except StopIteration as end:
        return end.value, waited


def answered(asking: Generator[Draft, Scores, Result], scores: Scores) -> Result:
    """What a generator returns when it is sent the scores of the one draft that it has yielded."""
    try:
        asking.send(scores)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a round has one draft and one forward")


def as_draft(session: Session, inner: Speculation, source: str = "") -> Draft:
    """The emitted tokens of an inner speculation as a chain for the next level, with the inner model's rows as `q`.

    Keeps the promise of `q` where the inner rule is lossless: then each token is distributed as the inner model's
    row, given its path. At temperature 0 every node is a deterministic proposal.
    """
    rows = (0, *(node + 1 for node in inner.verdict.path))[:len(inner.verdict.tokens)]
    tokens, dists = inner.verdict.tokens, [inner.scores.distribution(row, session.sampling) for row in rows]
    q = tuple(dist if len(dist.ids) > 1 else None for dist in dists)
    stats = tuple(inner.scores.stats(row, token) for row, token in zip(rows, tokens, strict=True))
    return Draft(tokens, tuple(range(-1, len(tokens) - 1)), q, stats, (source,) * len(tokens) if source else ())
