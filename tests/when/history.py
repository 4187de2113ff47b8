"""Sessions with a history, as a policy reads them: drafted and accepted tokens per round."""

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
    """Token statistics along a chain with these entropies."""
    return tuple(stat(entropy) for entropy in entropies)


def turn(drafted: int, kept: int, stop=None, stats: tuple[TokenStats, ...] = (), notes=MappingProxyType({})) -> Round:
    """A round that drafts a chain of which the first `kept` tokens are accepted."""
    draft = replace(deterministic_chain(range(drafted)), stats=stats)
    verdict = Verdict.of(draft, tuple(range(kept)), 9)
    return Round(Budget(drafted, stop=stop, notes=notes), draft, RowStats(None, None), verdict, ())


def after(*rounds: Round | tuple) -> Session:
    """A session after these rounds; a tuple holds the arguments of `turn`."""
    session = begin((1, 2), 500)
    for one in rounds:
        session = session.after(one if isinstance(one, Round) else turn(*one))
    return session
