"""One speculation: draft under a budget, score the draft with a model, verify it by a rule.

The loop speculates once a round with the target. A drafter may speculate too, with a model between drafter and target
(hierarchical drafting): `as_draft` hands what the middle model emitted to the next level. `speculation` leaves the
forward to its caller, who may score several sequences in one, and with `share` the drafter's forward as well. What a
part of yours returns is looked at here, since a wrong draft or verdict would show later, elsewhere or never. Knows no
schedule.
"""

from __future__ import annotations

from collections.abc import Generator
from numbers import Integral
from time import perf_counter
from typing import Any, NamedTuple, NoReturn, TypeVar

from specdec_lib.scores import Categorical, Scores
from specdec_lib.sharing import asking_of, shared_draft
from specdec_lib.types import (
    LM,
    ROOT,
    Budget,
    Draft,
    How,
    RandomNumbers,
    Refusal,
    Session,
    Verdict,
    What,
)

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
    asking = speculation(session, budget, what, how, dice, verdict_dice, vocab=getattr(lm, "vocab", None))
    return answered(asking, lm(session.tokens, next(asking)))


def speculation(session: Session, budget: Budget, what: What, how: How, dice: RandomNumbers,
                verdict_dice: RandomNumbers | None = None, share: bool = False,
                vocab: int | None = None) -> Generator[Any, Any, Speculation]:
    """`speculate` without its forward: yields the draft, is sent its scores and returns what came of it.

    With `share`, a drafter that can leave its forward to others (`types.SharingWhat`) is asked first: what it yields is
    yielded, and it is sent the answer. Seconds of waiting for that answer are not counted as drafting. Refusal for a
    draft or a verdict that is none, or that holds a token beyond `vocab`.
    """
    t0, waited, draft = perf_counter(), 0.0, Draft()
    if budget.depth and share:
        draft, waited = yield from shared_draft(asking_of(what, session, budget, dice))
        refuse_draft(draft, what, session, vocab)
    elif budget.depth:
        draft = drafted(what, session, budget, dice, vocab)
    t1 = perf_counter()
    scores = yield draft
    t2 = perf_counter()
    verdict = how(session, draft, scores, dice.fork("verdict") if verdict_dice is None else verdict_dice)
    refuse_verdict(verdict, draft, how, vocab)
    return Speculation(draft, scores, verdict.until(session), t1 - t0 - waited, t2 - t1, perf_counter() - t2)


def drafted(what: What, session: Session, budget: Budget, dice: RandomNumbers, vocab: int | None = None) -> Draft:
    """What the drafter returns, if it keeps the promises of a draft; else Refusal."""
    draft = what(session, budget, dice)
    refuse_draft(draft, what, session, vocab)
    return draft


def refuse(part: Any, kind: str, why: str) -> NoReturn:
    """Raises Refusal for what a part returned, named by its function or class."""
    raise Refusal(f"{getattr(part, '__name__', type(part).__name__)} returned no valid {kind}: {why}")


def refuse_other(value: Any, kind: type, part: Any) -> None:
    """Refuses a value of another kind than the part's room returns."""
    if not isinstance(value, kind):
        refuse(part, kind.__name__, f"it is of the type {type(value).__name__}")


def refuse_tokens(tokens: Any, kind: str, part: Any, vocab: int | None) -> None:
    """Refuses tokens that the target cannot read."""
    if type(tokens) is not tuple or not all(issubclass(kind, Integral) for kind in {*map(type, tokens)}):
        refuse(part, kind, f"its tokens are a tuple of int, got {tokens!r:.60}")
    if tokens and (min(tokens) < 0 or vocab is not None and max(tokens) >= vocab):
        wrong = min(tokens) if min(tokens) < 0 else max(tokens)
        last = "; a recording has -1 off its greedy lossless text" if vocab is None else f" to {vocab - 1}"
        refuse(part, kind, f"it holds token {wrong}, and the target's are from 0{last}")


def refuse_draft(draft: Any, what: What, session: Session, vocab: int | None = None) -> None:
    """Refuses what is no tree of the target's tokens: parents that do not precede, entries that lack.

    A q that is no distribution is looked for in the rounds 0, 1, 2, 4, 8, ... alone: it may lie on a GPU.
    """
    refuse_other(draft, Draft, what)
    refuse_tokens(draft.tokens, "Draft", what, vocab)
    for name in ("parents", "q", "stats", "source", "confidence"):
        count = len(getattr(draft, name))
        if count != len(draft) and (count or name == "parents"):
            refuse(what, "Draft", f"{name} has {count} entries for {len(draft)} tokens")
    for node, parent in enumerate(draft.parents):
        if not ROOT <= parent < node:
            refuse(what, "Draft", f"node {node} has the parent {parent}, and a parent precedes its child or is {ROOT}")
    count = len(session.rounds)
    for node, q in enumerate(() if count & (count - 1) else draft.q):
        if isinstance(q, Categorical) and (why := fault(q)):
            refuse(what, "Draft", f"q of node {node} {why}")


def fault(q: Categorical) -> str:
    """Why this is no distribution; empty where it sums to one up to a thousandth."""
    if len(q.ids) != len(q.probs):
        return f"has {len(q.probs)} probabilities for {len(q.ids)} tokens"
    if bool((q.probs < 0).any()):
        return "has a negative probability"
    total = float(q.probs.float().sum())
    return "" if abs(total - 1) < 1e-3 else f"sums to {total:.6g}"


def refuse_verdict(verdict: Any, draft: Draft, how: How, vocab: int | None = None) -> None:
    """Refuses what is no path down the draft with its tokens and one more: decoding might never end."""
    refuse_other(verdict, Verdict, how)
    path, tokens = tuple(verdict.path), verdict.tokens
    refuse_tokens(tokens, "Verdict", how, vocab)
    if not all(0 <= node < len(draft) for node in path) or path and draft.path(path[-1]) != path:
        refuse(how, "Verdict", f"{path} is no path from the context down its draft of {len(draft)} nodes")
    said = Verdict.of(draft, path, 0).tokens[:-1]
    if not tokens or len(tokens) > len(path) + 1 or tokens[:len(path)] != said:
        refuse(how, "Verdict", f"its tokens are those of its path, {said}, and one more, got {tokens!r:.60}")


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
