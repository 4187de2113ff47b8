"""The methods of the canvas by spec: every file of `canvas/methods/` with a CARD. There is no list to edit.

A card's `make` takes the model that the method will run on, then the parameters of the spec. `lossless` means here:
the same canvas as stepwise decoding with the same order and blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

from specdec_lib.canvas.types import CanvasMethod, CanvasModel
from specdec_lib.cards import Card
from specdec_lib.catalog import read_cards
from specdec_lib.parameters import check_parameters
from specdec_lib.specs import PartSpec, parse_part, split_specs, write_part
from specdec_lib.types import Refusal

FIRST = "stepwise"                                 # what the others are compared with


def canvas_cards() -> dict[str, Card]:
    """The cards by name, stepwise decoding first."""
    found, _ = read_cards("canvas.methods")
    return {name: found[name] for name in sorted(found, key=lambda name: (name != FIRST, name))}


def canvas_spec(text: str) -> PartSpec:
    """A spec read once; Refusal for a name or a parameter that no card has."""
    part = parse_part(text)
    cards = canvas_cards()
    if part.name not in cards:
        raise Refusal(f"there is no canvas method named {part.name!r}; there are: {', '.join(cards)}")
    check_parameters(cards[part.name], part.values)
    return part


def canvas_specs(text: str) -> tuple[PartSpec, ...]:
    """The specs of a comma-separated list, each once; Refusal for an empty list and for one that is named twice."""
    specs = tuple(canvas_spec(one) for one in split_specs(text))
    names = [write_part(spec) for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if not specs:
        raise Refusal(f"name at least one method: {', '.join(canvas_cards())}")
    if twice is not None:
        raise Refusal(f"{twice} is named twice: name it once")
    return specs


def make_canvas_method(spec: PartSpec | str, model: CanvasModel) -> CanvasMethod:
    """The method of a spec for this model; Refusal for values that it cannot take."""
    part = canvas_spec(spec) if isinstance(spec, str) else spec
    return canvas_cards()[part.name].make(model, **part.values)


def value_of(spec: PartSpec, name: str, otherwise: Any) -> Any:
    """What a method has for a parameter: the spec's value, its card's default, or `otherwise` where it takes none."""
    known = signature(canvas_cards()[spec.name].make).parameters
    return spec.values.get(name, known[name].default if name in known else otherwise)


def reference_of(spec: PartSpec) -> PartSpec | None:
    """Stepwise decoding with the order and blocks of a lossless method, which has to give its canvas; else None."""
    if spec.name == FIRST or not canvas_cards()[spec.name].lossless:
        return None
    usual = {"order": "confidence", "block": 0}
    own = {name: spec.values.get(name, usual[name]) for name in usual}
    return PartSpec(FIRST, {name: value for name, value in own.items() if value != usual[name]})


def with_references(specs: Sequence[PartSpec]) -> tuple[PartSpec, ...]:
    """The specs in their order, each preceded by the reference that it needs, and none of them twice."""
    out: list[PartSpec] = []
    for spec in specs:
        out += [one for one in (reference_of(spec), spec) if one is not None and one not in out]
    return tuple(out)
