"""Switch: the drafter that the budget names drafts; after an empty draft, the next one does.

Source: the choice per round between a copy and a drafter, as in SAM-Decoding (Hu et al. 2024). *When* makes the choice
and may give the next drafter its own budget (`Budget.sources`). Only an empty draft is passed over, so no drawn token
is ever dropped because of its value. Cost: that of the drafters called.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specdec_lib.cards import Card, Kit
from specdec_lib.sharing import asking_of
from specdec_lib.types import Budget, Draft, RandomNumbers, Refusal, Session, What, When


@dataclass(frozen=True)
class Switch:
    """Drafters by name; the budget's sources are asked in order, then the others in theirs."""

    drafters: Mapping[str, What]

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        for name, own in self.in_order(budget):
            draft = self.drafters[name](session, own, dice.fork(name))
            if len(draft):
                return draft
        return Draft()

    def asking(self, session: Session, budget: Budget, dice: RandomNumbers) -> Generator[Any, Any, Draft]:
        """The same, its drafters' forwards left to others."""
        for name, own in self.in_order(budget):
            draft = yield from asking_of(self.drafters[name], session, own, dice.fork(name))
            if len(draft):
                return draft
        return Draft()

    def refuse_strangers(self, when: When) -> None:
        """Refuses a policy whose budgets name a drafter that is not here."""
        for budget in vars(when).values():
            if isinstance(budget, Budget):
                list(self.in_order(budget))

    def in_order(self, budget: Budget) -> Iterator[tuple[str, Budget]]:
        """The budget's sources, then the other drafters with the last source's budget; Refusal for unknown names."""
        for name, _ in budget.sources:
            if name not in self.drafters:
                raise Refusal(f"the budget names the drafter {name!r}, and this method has {', '.join(self.drafters)}:"
                              " let the policy name one of these, or leave it out")
        yield from budget.sources
        last = budget.sources[-1][1] if budget.sources else budget
        named = {name for name, _ in budget.sources}
        yield from ((name, last) for name in self.drafters if name not in named)


def make(kit: Kit, drafters: Iterable[str] | Mapping[str, Mapping] = ("suffix-automaton", "token-recycling")) -> Switch:
    """Drafters by the names of their cards; a mapping gives each its parameters, `part` the card if that is another."""
    values = drafters if isinstance(drafters, Mapping) else {}
    own = {name: dict(values.get(name, {})) for name in drafters}
    return Switch({name: kit.part(given.pop("part", name), **given) for name, given in own.items()})


CARD = Card("switch", idea="the budget names who drafts", source="Hu et al. 2024, SAM-Decoding", make=make,
            parts=("suffix-automaton", "token-recycling"), notebook="03_one_loop", off_path=True)
