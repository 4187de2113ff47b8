"""A value that a policy carries from prompt to prompt, in `kit.memory`.

It changes between decodes alone: `finish`, which the loop calls once when a decode is over or given up, folds the whole
decode into the value, its last round included. Within one decode every question has one answer. One decode at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specdec_lib.types import Kit, Session

Fold = Callable[[Any, Session], Any]               # the value after a decode, from the value before it


class CarriedValue:
    """`value` is what earlier decodes led to; it is replaced as a whole and never changed in place."""

    def __init__(self, value: Any, fold: Fold):
        self.value, self.fold = value, fold

    def finish(self, session: Session) -> None:
        """The decode is over: what it led to is the value from now on."""
        self.value = self.fold(self.value, session)


def carried_value(kit: Kit, name: str, first: Any, fold: Fold) -> Any:
    """The value of this name in the kit's memory as earlier decodes left it; `first` where it is new."""
    return kit.memory.setdefault(name, CarriedValue(first, fold)).value
