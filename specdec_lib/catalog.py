"""The catalogue: finds the CARD of every file in the rooms and in methods/. There is no list to edit.

A spec is what stands on the command line: `sam`, `sam(mode="first")`, `draft-model@confidence(threshold=0.3)`. What
follows an `@` is the name of a *when* or a *how* that replaces the method's own: `eagle@svip@typical(eps=0.2)`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from dataclasses import fields, replace
from functools import cache
from typing import Any

from specdec_lib.types import Card, Kit, Method, Refusal

ROOMS = ("when", "what", "how")
REPLACED = ("when", "how")                         # whose parts may stand behind an @
GIVEN = {"store": "--store FILE", "draft": "--draft NAME"}      # what a user hands in rather than trains


@cache
def _cards(place: str) -> dict[str, Card]:
    package = importlib.import_module(f"specdec_lib.{place}")
    cards: dict[str, Card] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        card = getattr(importlib.import_module(f"{package.__name__}.{info.name}"), "CARD", None)
        if card is not None:
            if card.name in cards:
                raise ValueError(f"two cards in {place}/ are named {card.name}")
            cards[card.name] = card
    return cards


def parts() -> dict[str, dict[str, Card]]:
    """Cards of the three rooms: room -> name -> card."""
    return {room: _cards(room) for room in ROOMS}


def methods() -> dict[str, Card]:
    """Cards of the assembled methods by name, plain decoding first."""
    found = _cards("methods")
    return {name: found[name] for name in sorted(found, key=lambda name: (name != "ar", name))}


def part_card(name: str) -> Card:
    """The card of a part, in whichever room; Refusal with the names there are."""
    rooms = parts()
    for room in ROOMS:
        if name in rooms[room]:
            return rooms[room][name]
    raise Refusal(f"there is no part named {name!r}; there are: {', '.join(n for r in ROOMS for n in rooms[r])}")


def missing(card: Card, kit: Kit | None = None) -> list[str]:
    """What keeps this card from being made: names of parts, checkpoints or kit fields that are not there."""
    lacks: list[str] = []
    rooms = {name: found for room in parts().values() for name, found in room.items()}
    for name in card.parts:
        lacks += missing(rooms[name], kit) if name in rooms else [name]
    if kit is not None:
        lacks += [need for need in card.needs if getattr(kit, need, None) is None and need not in kit.checkpoints]
    return list(dict.fromkeys(lacks))


def remedy(name: str) -> str:
    """What makes a missing need available: an option, or the command that trains the checkpoint; "" if neither does."""
    needs = {need for room in parts().values() for card in room.values() for need in card.needs}
    trained = name in needs - {field.name for field in fields(Kit)}
    return GIVEN.get(name, f"specdec train {name}" if trained else "")


def _lacking(name: str) -> str:
    command = remedy(name)
    if command.startswith("specdec"):
        return f"the checkpoint {name} is missing (`{command}` makes it)"
    return f"{name} is missing" + (f" ({command})" if command else "")


def make_part(name: str, kit: Kit, **values) -> Any:
    """A part by its card's name, made from the kit with these parameters; what a kit is given as its `parts`."""
    return _make(part_card(name), kit, values)


def build(spec: str, kit: Kit) -> Method:
    """The method a spec names, made from the kit. Refusal for unknown names, wrong parameters or missing parts."""
    name, values, instead = spelled(spec)
    card = methods()[name]
    for some in (card, *(other for other, _ in instead.values())):
        lacks = missing(some, kit)
        if lacks:
            raise Refusal(f"{some.name} cannot be made: " + ", ".join(map(_lacking, lacks)))
    kit = replace(kit, drafter=next((part for part in card.parts if part in parts()["what"]), ""))
    method = _make(card, kit, values)
    return method._replace(**{room: _make(other, kit, its) for room, (other, its) in instead.items()})


def card_of(spec: str) -> Card:
    """The card of the method that a spec names, as the parts behind an @ leave it.

    With a policy that learns across prompts so does the method; with a lossy rule it is lossy. A lossless rule in place
    of a method's own lossy one does not promise the contrary.
    """
    name, values, instead = spelled(spec)
    card, others = methods()[name], list(instead.values())
    return replace(card, learns_across_prompts=any(learns_with(*some) for some in ((card, values), *others)),
                   lossless=all(some.lossless for some in (card, *(other for other, _ in others))))


def learns_with(card: Card, values: dict[str, Any]) -> bool:
    """Whether a card takes anything from prompt to prompt with these values; some leave that to one named `remember`.
    """
    asked = inspect.signature(card.make).parameters.get("remember")
    return card.learns_across_prompts and bool(asked is None or values.get("remember", asked.default))


def spelled(spec: str) -> tuple[str, dict[str, Any], dict[str, tuple[Card, dict[str, Any]]]]:
    """Name and parameters of a spec's method, and by room the cards, with parameters, that replace its own parts."""
    (name, values), *others = map(parse, spec.split("@"))
    if name not in methods():
        raise Refusal(f"there is no method named {name!r}; there are: {', '.join(methods())}")
    rooms, instead = {room: parts()[room] for room in REPLACED}, {}
    for other, its in others:
        room = next((room for room, cards in rooms.items() if other in cards), None)
        if room is None:
            raise Refusal(f"there is no policy named {other!r} and no rule of verification; there are: "
                          + ", ".join(name for cards in rooms.values() for name in cards))
        if room in instead:
            raise Refusal(f"{spec!r} names two parts of one kind, {instead[room][0].name} and {other}: one decides")
        instead[room] = rooms[room][other], its
    return name, values, instead


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """`respec(theta=1.0)` -> ("respec", {"theta": 1.0}); values are Python literals."""
    name, bracket, inside = spec.strip().partition("(")
    if not bracket:
        return name, {}
    try:
        call = ast.parse(f"f({inside}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        return name, {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise Refusal(f"{spec!r} is not a name with parameters such as sam(mode='first')") from error


def split(specs: str) -> list[str]:
    """A comma-separated list of specs; commas inside brackets stay."""
    out, depth = [""], 0
    for letter in specs:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            out.append("")
        else:
            out[-1] += letter
    return [spec.strip() for spec in out if spec.strip()]


def _make(card: Card, kit: Kit, values: dict[str, Any]) -> Any:
    known = [name for name in inspect.signature(card.make).parameters][1:]
    strange = [name for name in values if name not in known]
    if strange:
        choice = f"it takes {', '.join(known)}" if known else "it takes none"
        raise Refusal(f"{card.name} has no parameter {strange[0]!r}; {choice}")
    return card.make(kit, **values)
