"""torch, loaded at its first use: the cards of the rooms, help and refusals need none of it, and it takes a second.

`from specdec_lib.lazy import torch` stands for `import torch` in every module that a card is read from.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class LazyModule(ModuleType):
    """A module by name that is imported when the first attribute is asked for; attributes are kept from then on."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):                  # inspection asks for these, and they are not worth a second
            raise AttributeError(f"module {self.__name__!r} is loaded at its first use and has no {name!r} before")
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import torch as torch
else:
    torch = LazyModule("torch")
