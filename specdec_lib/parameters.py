"""The parameters of a spec against the signature of the card that takes them: names, types and finite numbers.

The annotations of `make` decide, strictly: True is no whole number, and 1.5 none either. Knows no cards by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

from specdec_lib.cards import Card
from specdec_lib.types import Refusal

LARGEST = 2 ** 31 - 1                             # of a whole number, in size


def defaults(card: Card) -> dict[str, Any]:
    """The parameters that a spec of this card may give, in order, with their defaults."""
    return dict(defaults_of(card.make))


@lru_cache(maxsize=1024)
def defaults_of(make: Callable[..., Any]) -> tuple[tuple[str, Any], ...]:
    """What `make` takes beside the kit, read once: parts are made anew for every answer."""
    return tuple((name, one.default) for name, one in list(inspect.signature(make).parameters.items())[1:])


def check_parameters(card: Card, values: Mapping[str, Any]) -> None:
    """Refuses a parameter that the card does not take, and a value that is not of its type."""
    known = list(defaults(card))
    for name, value in values.items():
        if name not in known:
            choice = f"it takes {', '.join(known)}" if known else "it takes none"
            raise Refusal(f"{card.name} has no parameter {name!r}; {choice}")
        why = mismatch(card.make, name, value)
        if why:
            raise Refusal(f"{card.name} cannot take {name}={shown(value)}: {why}")


def mismatch(make: Callable[..., Any], name: str, value: Any) -> str:
    """Why this value does not fit the annotation of the parameter; "" if it does.

    Without pydantic, as on a machine that has torch and little else, types go unchecked.
    """
    try:
        from pydantic import ValidationError
    except ImportError:
        return ""
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"whole numbers go up to {LARGEST:,}"
    try:
        validator(make, name).validate_python(with_tuples(value))
    except ValidationError as error:
        first = error.errors()[0]["msg"]
        return first[:1].lower() + first[1:]
    return ""


@lru_cache(maxsize=1024)
def validator(make: Callable[..., Any], name: str) -> Any:
    """pydantic's strict reader of the parameter's annotation, which anything passes where there is none."""
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(get_type_hints(make).get(name, Any), config=ConfigDict(strict=True, allow_inf_nan=False))


def with_tuples(value: Any) -> Any:
    """The value with a tuple in place of a list: parts take either."""
    return tuple(value) if isinstance(value, list) else value


def shown(value: Any) -> str:
    """The value as it was written, long ones cut."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
