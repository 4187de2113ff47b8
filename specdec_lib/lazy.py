"""Imports that take seconds, made later or not at all.

`from specdec_lib.lazy import torch` stands for `import torch` in every module that a card is read from: the cards of
the rooms, help and refusals need none of it. `import_jsonschema` leaves out what no notebook needs.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

GRAMMAR = "rfc3987_syntax"


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


def import_jsonschema() -> None:
    """Imports jsonschema, by which plotly and papermill check notebooks, without its grammar of web addresses.

    Compiling that grammar takes two seconds, and no notebook's schema asks for it. Where jsonschema is missing or the
    grammar is there already, nothing happens; the grammar can be imported later all the same.
    """
    if "jsonschema" in sys.modules or GRAMMAR in sys.modules:
        return
    sys.modules[GRAMMAR] = cast(ModuleType, None)  # makes its import fail, which jsonschema provides for
    try:
        with suppress(ImportError):
            import_module("jsonschema")
    finally:
        del sys.modules[GRAMMAR]
