"""A value that a policy carries from prompt to prompt, in `kit.memory`.

It changes between decodes only: `finish`, which the loop calls once at the end of a decode or when it is abandoned,
folds the whole decode, including its last round, into the value. Within one decode every read gives the same value. One
decode at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specdec_lib.cards import Kit
from specdec_lib.types import Session

Fold = Callable[[Any, Session], Any]               # the value after a decode, from the value before it


class CarriedValue:
    """`value` is the result of earlier decodes; it is replaced as a whole and never changed in place."""

    def __init__(self, value: Any, fold: Fold):
        self.value, self.fold = value, fold

    def finish(self, session: Session) -> None:
        """End a decode: fold its session into the value."""
        self.value = self.fold(self.value, session)


def carried_value(kit: Kit, name: str, first: Any, fold: Fold) -> Any:
    """The value of this name in the kit's memory after earlier decodes; `first` if it is new."""
    return kit.memory.setdefault(name, CarriedValue(first, fold)).value
