"""The specs of a grid: every combination of the values of a method's parameters, checked before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, get_type_hints

from specdec_lib import catalog
from specdec_lib.cards import Card
from specdec_lib.parameters import check_parameters, with_tuples
from specdec_lib.specs import MethodSpec, PartSpec, write_part
from specdec_lib.sweep.grid import MOST, GridFile, MethodAxis, distinct
from specdec_lib.types import Refusal


@dataclass(frozen=True)
class SweptSpec:
    """One method of a grid with one value of each of its parameters."""

    spec: MethodSpec
    axis: int                                      # its place among the grid's methods
    named: Mapping[str, Any]                       # parameters that the grid names, by the grid's names for them


def swept_specs(read: GridFile) -> list[SweptSpec]:
    """Every method with every combination of its parameters; Refusal naming the line of the first that is wrong.

    Refusal as well, before any is made, for more than a sweep has cells.
    """
    for place, axis in enumerate(read.grid.methods):
        count = prod(len(given) for given in axis.parameters.values() if isinstance(given, list))
        if count > MOST:
            raise read.refusal(f"{axis.method[:40]} has {count:,} combinations of its parameters, and a sweep has at"
                               f" most {MOST:,} cells: give fewer values", "methods", place)
    return [one for place, axis in enumerate(read.grid.methods) for one in of_axis(read, place, axis)]


def of_axis(read: GridFile, place: int, axis: MethodAxis) -> Iterator[SweptSpec]:
    """The combinations of one method."""
    try:
        base = catalog.method_spec(axis.method)
    except Refusal as why:
        raise read.refusal(why, "methods", place, "method") from None
    values: dict[str, list] = {}
    for name, given in axis.parameters.items():
        where = ("methods", place, "parameters", name)
        try:
            values[name] = distinct(given if isinstance(given, list) else [given])
            check_name(base, name)
        except ValueError as why:
            raise read.refusal(why, *where) from None
        if not values[name]:
            raise read.refusal(f"{name} has no values", *where)
        for index, value in enumerate(values[name]):
            try:
                check_parameters(card_of_name(base, name), {name.rpartition(".")[2]: value})
                combined(base, {name: value})
            except Refusal as why:
                raise read.refusal(why, *where, index) from None
    for some in product(*values.values()):
        named = dict(zip(values, some, strict=True))
        try:
            yield SweptSpec(combined(base, named), place, named)
        except Refusal as why:
            raise read.refusal(why, "methods", place) from None


def check_name(base: MethodSpec, name: str) -> None:
    """Refuses a parameter of a part that the method does not name, and one that the method's text already sets."""
    part, _, parameter = name.rpartition(".")
    mine = base.method if not part else replaced_part(base, part)
    if mine is None:
        raise Refusal(f"{name} is a parameter of {part}, which {base} does not name behind an @")
    if parameter in mine.values:
        raise Refusal(f"{base} already sets {parameter}: leave it out there or here")


def replaced_part(base: MethodSpec, name: str) -> PartSpec | None:
    """The part of this name behind an @."""
    return next((part for part in base.replaced.values() if part.name == name), None)


def card_of_name(base: MethodSpec, name: str) -> Card:
    """The card that takes the parameter of this name."""
    part = name.rpartition(".")[0]
    return catalog.part_card(part) if part else catalog.methods()[base.name]


def combined(base: MethodSpec, named: Mapping[str, Any]) -> MethodSpec:
    """The method with these parameters besides those of its text."""
    own = PartSpec(base.name, {**base.method.values, **{name: value for name, value in named.items()
                                                        if "." not in name}})
    parts = [PartSpec(part.name, {**part.values, **{name.partition(".")[2]: value for name, value in named.items()
                                                    if name.partition(".")[0] == part.name and "." in name}})
             for part in base.replaced.values()]
    return catalog.method_spec("@".join(map(write_part, (own, *parts))))


def whole_parameters(spec: MethodSpec) -> dict[str, Any]:
    """All parameters of a spec, defaults included, under the names that a grid uses: two texts may mean the same."""
    out = resolved(catalog.methods()[spec.name], spec.method.values)
    for part in spec.replaced.values():
        out |= {f"{part.name}.{name}": value
                for name, value in resolved(catalog.part_card(part.name), part.values).items()}
    return out


def resolved(card: Card, values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a card with these values; a whole number where a real one is taken is written as a real one."""
    hints = get_type_hints(card.make)
    out: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(card.make).parameters.items())[1:]:
        value = with_tuples(values.get(name, parameter.default))
        real = "float" in str(hints.get(name, "")) and "int" not in str(hints.get(name, ""))
        out[name] = float(value) if real and isinstance(value, int) and not isinstance(value, bool) else value
    return out
