"""Values by name, of which a person names one: another name is refused with those that there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from specdec_lib.types import Refusal

T = TypeVar("T")


class ByName(dict[str, T]):
    """A dictionary; Refusal, which tells its names, where a `kind` of value is asked for that is not there."""

    def __init__(self, values: Mapping[str, T], kind: str):
        super().__init__(values)
        self.kind = kind

    def __missing__(self, name: str) -> T:
        raise Refusal(f"there is no {self.kind} {name!r}; there are: {', '.join(self)}")


def one_of(names: Iterable[str], name: str, kind: str) -> str:
    """The name, if it is one of these; else Refusal, which tells them."""
    return ByName({one: one for one in names}, kind)[name]
