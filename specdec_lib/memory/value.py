"""Carried: one value that a policy takes from prompt to prompt, in `kit.memory`.

It grows between decodes alone, like the store of earlier answers: what the decode under way has led to is put aside
while it runs, and counts once the next decode is set up. So within one decode every question has one answer, and a
decode that was stopped half-way leaves what it had learned. One decode at a time.
"""

from __future__ import annotations

from typing import Any

from specdec_lib.types import Kit


class CarriedValue:
    """`value` is what earlier decodes have left; it is replaced as a whole and never changed in place."""

    def __init__(self, value: Any):
        self.value = self._heard = value

    def hear(self, value: Any) -> None:
        """What the decode under way has led to until now; it replaces what was heard before."""
        self._heard = value

    def settle(self) -> CarriedValue:
        """The decode is over, or was given up: what was heard of it is the value from now on."""
        self.value = self._heard
        return self


def carried_value(kit: Kit, name: str, first: Any) -> CarriedValue:
    """The value of this name in the kit's memory, `first` where it is new, settled once per decode."""
    return kit.index(name, lambda: kit.memory.setdefault(name, CarriedValue(first)).settle())
