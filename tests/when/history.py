"""Sessions with a history, as a policy finds them: so many tokens drafted and kept in each round."""

from __future__ import annotations

from dataclasses import replace

from specdec_lib.drafting import certain_chain
from specdec_lib.loop import begin
from specdec_lib.types import Brief, Budget, Round, Session, Sight, Verdict


def sight(entropy: float = 0.0, chance: float = .5, first: float = .5, second: float = .1) -> Sight:
    return Sight(chance, first, second, entropy)


def trail(*entropies: float) -> tuple[Sight, ...]:
    """What a drafter saw along a chain with these entropies."""
    return tuple(sight(entropy) for entropy in entropies)


def turn(drafted: int, kept: int, stop=None, sights: tuple[Sight, ...] = ()) -> Round:
    """A round that drafted a chain and kept its first tokens."""
    draft = replace(certain_chain(range(drafted)), sights=sights)
    return Round(Budget(drafted, stop=stop), draft, Brief(None, None), Verdict.of(draft, tuple(range(kept)), 9), ())


def after(*rounds: Round | tuple) -> Session:
    """A session after these rounds; a tuple is what `turn` takes."""
    session = begin((1, 2), 500)
    for one in rounds:
        session = session.after(one if isinstance(one, Round) else turn(*one))
    return session
