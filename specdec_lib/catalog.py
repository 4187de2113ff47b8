"""The catalogue: finds the CARD of every file in the rooms and in methods/. There is no list to edit."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from traceback import extract_tb
from typing import Any

from specdec_lib.cards import Card, Kit, NamedParts
from specdec_lib.parameters import check_parameters
from specdec_lib.specs import MethodSpec, PartSpec, parse_part
from specdec_lib.types import Method, Refusal

ROOMS = ("when", "what", "how")
REPLACED = ("when", "how")                         # whose parts may follow an @
# What the field calls methods elsewhere -> what a refusal of that name says.
ELSEWHERE = {**dict.fromkeys(("pld", "lookup"), "it is prompt-lookup here"),
             **dict.fromkeys(("suffix", "arctic"), "it is suffix-decoding here"),
             "rest": "suffix-decoding with --store FILE comes nearest to it",
             **dict.fromkeys(("medusa", "lookahead"), "it is not implemented here")}
GIVEN = {"store": "--store FILE", "draft": "--draft NAME"}      # given by the user, not trained


@cache
def read_cards(place: str) -> tuple[dict[str, Card], tuple[str, ...]]:
    """The cards of a folder by name, and a sentence for each file whose card cannot be used."""
    package = importlib.import_module(f"specdec_lib.{place}")
    cards: dict[str, Card] = {}
    wrong: list[str] = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        try:
            card = getattr(importlib.import_module(f"{package.__name__}.{info.name}"), "CARD", None)
            if card is not None:
                cards[_new_name(card, cards)] = card
        except Exception as error:                 # a file that somebody is writing fails in any way
            wrong.append(_why_left_out(place, f"{info.name}.py", error))
    return cards, tuple(wrong)


def _new_name(card: Any, cards: dict[str, Card]) -> str:
    if not isinstance(card, Card):
        raise TypeError(f"CARD is a Card, got {type(card).__name__}")
    if card.name in cards:
        raise ValueError(f"another file has a card named {card.name}")
    return card.name


def _why_left_out(place: str, file: str, error: Exception) -> str:
    inside = [frame.lineno for frame in extract_tb(error.__traceback__) if Path(frame.filename).name == file]
    line = error.lineno if isinstance(error, SyntaxError) else inside[-1] if inside else None
    said = (str(error) or "no reason given").splitlines()[0]
    return (f"specdec_lib/{place}/{file} is left out: {f'line {line}: ' if line else ''}{type(error).__name__}: {said};"
            " correct it, the other cards work")


def _cards(place: str) -> dict[str, Card]:
    return read_cards(place)[0]


def left_out() -> list[str]:
    """A sentence for each file of the rooms and of methods/ whose card cannot be used."""
    return [sentence for place in (*ROOMS, "methods") for sentence in read_cards(place)[1]]


def _unknown(kind: str, name: str, known: Iterable[str]) -> Refusal:
    known, written = list(known), name.lower().replace("_", "-")
    hint = ELSEWHERE.get(written) if kind == "method" else None
    near = get_close_matches(written, known, 1, 0.7)
    if near and not hint:
        hint = f"did you mean {near[0]}?"
    refused = f"there is no {kind} named {name!r}" + (f" ({hint})" if hint else "")
    return Refusal("; ".join([f"{refused}; there are: {', '.join(known)}", *left_out()]))


def parts() -> dict[str, dict[str, Card]]:
    """Cards of the three rooms: room -> name -> card."""
    return {room: _cards(room) for room in ROOMS}


def methods() -> dict[str, Card]:
    """Cards of the assembled methods by name, plain decoding first."""
    found = _cards("methods")
    return {name: found[name] for name in sorted(found, key=lambda name: (name != "ar", name))}


def part_card(name: str) -> Card:
    """The card of a part, in any room; Refusal with the known names."""
    rooms = parts()
    for room in ROOMS:
        if name in rooms[room]:
            return rooms[room][name]
    raise _unknown("part", name, (known for room in ROOMS for known in rooms[room]))


def missing(card: Card, kit: Kit | None = None) -> list[str]:
    """What this card lacks to be made: names of missing parts, checkpoints or kit fields."""
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


def lacking(spec: MethodSpec | Card | str, kit: Kit) -> str:
    """What a method or a card lacks to be made from the kit, with what makes it available; "" where nothing."""
    cards = [spec] if isinstance(spec, Card) else made_cards(method_spec(spec))
    return ", ".join(map(_lacking, dict.fromkeys(need for card in cards for need in missing(card, kit))))


def _lacking(name: str) -> str:
    command = remedy(name)
    if command.startswith("specdec"):
        return f"the checkpoint {name} is missing (`{command}` makes it)"
    return f"{name} is missing" + (f" ({command})" if command else "")


def make_part(name: str, kit: Kit, **values) -> Any:
    """A part by its card's name, made from the kit with these parameters; the usual `parts` of a kit."""
    return _make(part_card(name), kit, values)


def refuse_lacking(card: Card, kit: Kit) -> None:
    """Raises Refusal where the kit lacks what this card is made from."""
    lacks = lacking(card, kit)
    if lacks:
        raise Refusal(f"{card.name} cannot be made: {lacks}")


def method_spec(spec: MethodSpec | str) -> MethodSpec:
    """The parsed spec; Refusal for a name or a parameter that no card has, and for two parts of a kind behind an @."""
    if isinstance(spec, MethodSpec):
        return spec
    own, *others = map(parse_part, spec.split("@"))
    if own.name not in methods():
        raise _unknown("method", own.name, methods())
    rooms, replaced = {room: parts()[room] for room in REPLACED}, {}
    for other in others:
        room = next((room for room, cards in rooms.items() if other.name in cards), None)
        if room is None:
            raise Refusal(f"there is no policy named {other.name!r} and no such acceptance rule; there are: "
                          + ", ".join(name for cards in rooms.values() for name in cards))
        if room in replaced:
            raise Refusal(f"{spec!r} names two parts of one kind, {replaced[room].name} and {other.name}:"
                          " one decides, leave the other out")
        replaced[room] = other
    check_parts(own, replaced)
    return MethodSpec(spec, own, replaced)


def check_parts(own: PartSpec, replaced: Mapping[str, PartSpec]) -> None:
    """Refuses parameters that a card does not take, and a policy of draft length where nothing is drafted."""
    card = methods()[own.name]
    others = [(parts()[room][part.name], part.values) for room, part in replaced.items()]
    for some, values in ((card, own.values), *others):
        check_values(some, values)
    if card.ahead:
        refuse_hidden_states(card, [*named_parts([(card, own.values), *others]), *(other for other, _ in others)])
    if "when" in replaced and "nothing" in card.parts:
        raise Refusal(f"{own.name} drafts nothing, so {replaced['when'].name} has no length to decide: name a method"
                      " that drafts, or leave the policy out")


def check_values(card: Card, values: Mapping[str, Any]) -> None:
    """Refuses parameters that a card does not take, and the name of a part that is not of the parameter's room."""
    check_parameters(card, values)
    if not isinstance(card.named, NamedParts):
        return
    for parameter, room in card.named.rooms.items():
        for name in card.named.given(parameter, values):
            if name not in parts()[room]:
                raise Refusal("; ".join([f"{parameter} of {card.name} names a part of the room {room}, and {name!r} is "
                                         f"none; there are: {', '.join(parts()[room])}", *left_out()]))


def refuse_hidden_states(card: Card, chosen: Iterable[Card]) -> None:
    """Refuses parts that read the target's hidden states, which do not exist where this method drafts.

    The target would compute them in forwards of its own, which no round counts.
    """
    for part in chosen:
        if any(some.reads_states for some in with_parts([part])):
            raise Refusal(f"{card.name} drafts after tokens that the target has not read, where {part.name} finds no "
                          "hidden states to read: name a drafter such as draft-model, or a policy such as svip")


def build(spec: MethodSpec | str, kit: Kit) -> Method:
    """The method a spec names, made from the kit. Refusal for unknown names, wrong parameters or missing parts."""
    spec = method_spec(spec)
    card, others = methods()[spec.name], replacing_cards(spec)
    for some in made_cards(spec):
        refuse_lacking(some, kit)
    kit = replace(kit, drafter=next((part for part in card.parts if part in parts()["what"]), ""))
    method = _make(card, kit, spec.method.values)
    made = {room: _make(other, kit, spec.replaced[room].values) for room, other in others.items()}
    method = method._replace(**made)
    getattr(method.what, "refuse_strangers", lambda when: None)(method.when)
    return method


def replacing_cards(spec: MethodSpec) -> dict[str, Card]:
    """Room -> card of each part that replaces the method's own."""
    return {room: parts()[room][part.name] for room, part in spec.replaced.items()}


def card_of(spec: MethodSpec | str) -> Card:
    """The card of the method that a spec names, changed by the parts behind an @.

    A policy that learns across prompts makes the method learn across prompts; a lossy rule makes it lossy, behind an @
    or named by a parameter. A lossless rule in place of a method's own lossy one does not make it lossless.
    """
    spec = method_spec(spec)
    learns = any(learns_with(*some) for some in with_values(spec))
    return replace(methods()[spec.name], learns_across_prompts=learns,
                   lossless=all(some.lossless for some in made_cards(spec)))


def with_values(spec: MethodSpec) -> list[tuple[Card, Mapping[str, Any]]]:
    """The method's own card and those of the parts behind an @, each with its parameters."""
    return [(methods()[spec.name], spec.method.values),
            *((other, spec.replaced[room].values) for room, other in replacing_cards(spec).items())]


def made_cards(spec: MethodSpec) -> list[Card]:
    """The cards that a spec names: the method's own, those of the parts behind an @, and those in parameters."""
    made = with_values(spec)
    return [*(card for card, _ in made), *named_parts(made)]


def named_parts(made: Iterable[tuple[Card, Mapping[str, Any]]]) -> list[Card]:
    """The cards of the parts that the parameters of these cards name."""
    rooms = {name: card for room in parts().values() for name, card in room.items()}
    return [rooms[name] for card, values in made for name in card.named(values) if name in rooms]


def learns_with(card: Card, values: Mapping[str, Any]) -> bool:
    """Whether a part learns across prompts with these parameters; `remember` may switch it off."""
    asked = inspect.signature(card.make).parameters.get("remember")
    return card.learns_across_prompts and bool(asked is None or values.get("remember", asked.default))


def cards_of(spec: MethodSpec | str) -> list[Card]:
    """The card of the method that a spec names, and those of the parts that replace its own."""
    spec = method_spec(spec)
    return [card_of(spec), *replacing_cards(spec).values()]


def with_parts(cards: Iterable[Card]) -> list[Card]:
    """These cards and those of the parts they name, whose own parts are included."""
    rooms = {name: card for room in parts().values() for name, card in room.items()}
    found = list(cards)
    for card in found:
        found += [rooms[part] for part in card.parts if part in rooms]
    return found


def needs(cards: Iterable[Card]) -> list[str]:
    """What these cards and the parts they name need: fields of a kit, and checkpoints."""
    return list(dict.fromkeys(need for card in with_parts(cards) for need in card.needs))


def named_needs(spec: MethodSpec | str) -> list[str]:
    """What the parameters of a spec name: checkpoints, and the needs of parts."""
    spec = method_spec(spec)
    rooms = {name: card for room in parts().values() for name, card in room.items()}
    names = [spec.checkpoint] if spec.checkpoint else []
    names += methods()[spec.name].named(spec.method.values)
    return list(dict.fromkeys(need for name in names for need in (needs([rooms[name]]) if name in rooms else [name])))


def needed_checkpoints(spec: MethodSpec | str) -> list[str]:
    """The checkpoints that a spec needs."""
    return checkpoints_among(dict.fromkeys([*needs(cards_of(spec)), *named_needs(spec)]))


def checkpoints_among(needed: Iterable[str]) -> list[str]:
    """Those of these needs that are not kit fields."""
    kit = {field.name for field in fields(Kit)}
    return [need for need in needed if need not in kit]


def _make(card: Card, kit: Kit, values: dict[str, Any]) -> Any:
    check_values(card, values)
    return card.make(kit, **values)
