"""Nothing: the empty draft of plain decoding, which is never called."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card
from specdec_lib.types import Budget, Draft, RandomNumbers, Session


@dataclass(frozen=True)
class Nothing:
    """The empty draft."""

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        return Draft()


CARD = Card("nothing", idea="propose no token", source="plain decoding", make=lambda kit: Nothing(),
            notebook="03_one_loop")
