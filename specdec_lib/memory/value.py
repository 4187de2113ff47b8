"""Carried value: one value that a policy takes from prompt to prompt, in `kit.memory`.

It changes between decodes only, like the store of earlier answers: the result of the running decode is held back and
becomes the value when the next decode is set up. So within one decode every read gives the same value, and an
interrupted decode leaves what it had learned. One decode at a time.
"""

from __future__ import annotations

from typing import Any

from specdec_lib.types import Kit


class CarriedValue:
    """`value` is the result of earlier decodes; it is replaced as a whole and never changed in place."""

    def __init__(self, value: Any):
        self.value = self._heard = value

    def hear(self, value: Any) -> None:
        """Hold the running decode's result so far; it replaces the one held before."""
        self._heard = value

    def settle(self) -> CarriedValue:
        """End the running decode: the result held becomes the value."""
        self.value = self._heard
        return self


def carried_value(kit: Kit, name: str, first: Any) -> CarriedValue:
    """The value of this name in the kit's memory, `first` if it is new, settled once per decode."""
    return kit.index(name, lambda: kit.memory.setdefault(name, CarriedValue(first)).settle())
