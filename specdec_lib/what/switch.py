"""Switch: the drafter that the budget names drafts; after an empty draft, the next one does.

Source: the choice per round between a copy and a drafter, as in SAM-Decoding (Hu et al. 2024). *When* makes the choice
and may give the next drafter its own budget (`Budget.instead`). Only an empty draft is passed over, so no drawn token
is ever dropped because of its value. Cost: that of the drafters called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from specdec_lib.types import Budget, Card, Draft, Kit, Refusal, Session, What


@dataclass(frozen=True)
class Switch:
    """Drafters by name; `budget.source` drafts first, then the others in their order."""

    drafters: Mapping[str, What]

    def __call__(self, session: Session, budget: Budget, dice) -> Draft:
        if budget.source and budget.source not in self.drafters:
            raise Refusal(f"the budget names {budget.source!r}; this switch has {', '.join(self.drafters)}")
        for name in sorted(self.drafters, key=lambda name: name != budget.source):
            draft = self.drafters[name](session, budget, dice.fork(name))
            if len(draft):
                return draft
            budget = budget.instead or budget
        return Draft()


def make(kit: Kit, drafters: Iterable[str] | Mapping[str, Mapping] = ("suffix-automaton", "token-recycling")) -> Switch:
    """Drafters by the names of their cards; a mapping gives each its parameters."""
    values = drafters if isinstance(drafters, Mapping) else {}
    return Switch({name: kit.part(name, **values.get(name, {})) for name in drafters})


CARD = Card("switch", idea="the budget names who drafts", source="Hu et al. 2024, SAM-Decoding", make=make,
            parts=("suffix-automaton", "token-recycling"), notebook="03_one_loop", off_path=True)
