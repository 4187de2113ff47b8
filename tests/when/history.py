"""Sessions with a history, as a policy finds them: so many tokens drafted and kept in each round."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from specdec_lib.loop import begin
from specdec_lib.scores import RowStats, TokenStats
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Budget, Round, Session, Verdict


def stat(entropy: float = 0.0, prob: float = .5, first: float = .5, second: float = .1) -> TokenStats:
    return TokenStats(prob, first, second, entropy)


def trail(*entropies: float) -> tuple[TokenStats, ...]:
    """What a drafter saw along a chain with these entropies."""
    return tuple(stat(entropy) for entropy in entropies)


def turn(drafted: int, kept: int, stop=None, stats: tuple[TokenStats, ...] = (), notes=MappingProxyType({})) -> Round:
    """A round that drafted a chain and kept its first tokens."""
    draft = replace(deterministic_chain(range(drafted)), stats=stats)
    verdict = Verdict.of(draft, tuple(range(kept)), 9)
    return Round(Budget(drafted, stop=stop, notes=notes), draft, RowStats(None, None), verdict, ())


def after(*rounds: Round | tuple) -> Session:
    """A session after these rounds; a tuple is what `turn` takes."""
    session = begin((1, 2), 500)
    for one in rounds:
        session = session.after(one if isinstance(one, Round) else turn(*one))
    return session
