"""`specdec methods`, `specdec parts`: the catalogue as plain data and as a table, with what is missing.

With a name, one card whole: its parameters, their defaults and what they do.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import typer

from specdec_lib import catalog
from specdec_lib.cards import Card, Kit
from specdec_lib.checkpoints.card import SHIPPED, checkpoint_names
from specdec_lib.commands.exit_codes import say
from specdec_lib.parameters import defaults
from specdec_lib.types import LM


def bare_kit(shelf: Path = SHIPPED) -> Kit:
    """What every run has: a target, a draft model (see `bench/draft_source.py`), the checkpoints in a folder."""
    here = cast(LM, object())                      # only asked whether it is there
    return Kit(target=here, draft=here, checkpoints=dict.fromkeys(checkpoint_names(shelf)))


def list_methods(shelf: Path = SHIPPED, name: str | None = None) -> list[dict]:
    """Every assembled method, or the one of this name; no checkpoint is read. Refusal for an unknown name."""
    own = None if name is None else catalog.method_spec(name).name
    return [_entry(card, bare_kit(shelf)) for card in catalog.methods().values() if own in (None, card.name)]


def list_parts(shelf: Path = SHIPPED, name: str | None = None) -> list[dict]:
    """Every part, with its room, or those of this name. Refusal for an unknown name."""
    own = None if name is None else catalog.part_card(name).name
    return [{"room": room, **_entry(card, bare_kit(shelf))} for room, cards in catalog.parts().items()
            for card in cards.values() if own in (None, card.name)]


def _entry(card: Card, kit: Kit) -> dict:
    missing = catalog.missing(card, kit)
    given = {name: dict(value) if isinstance(value, Mapping) else value for name, value in defaults(card).items()}
    return {"name": card.name, "idea": card.idea, "source": card.source, "lossless": card.lossless,
            "needs": list(card.needs), "available": not missing, "missing": missing,
            "notebook": card.notebook, "parameters": given, "about": inspect.getdoc(card.make) or ""}


def listing_table(entries: Sequence[dict]) -> str:
    """One line each, in columns: name, losslessness, idea, and how to get what is missing."""
    wide = max((len(entry["name"]) for entry in entries), default=0)
    return "\n".join(f"{entry.get('room', ''):5}"[:5 * ("room" in entry)]
                     + f"{entry['name']:{wide}}  {'lossless' if entry['lossless'] else 'lossy   '}  "
                     + f"{entry['idea']} ({entry['source']}){_needs(entry['missing'])}" for entry in entries)


def card_text(entry: dict) -> str:
    """One entry whole: its line of the table, its notebook, its parameters with their defaults, and what these do."""
    given = [f"{name}={value!r}" for name, value in entry["parameters"].items()]
    shown = f"parameters with their defaults, written as {entry['name']}({given[0]}):" if given else "no parameters"
    return "\n".join([listing_table([entry]), f"notebook {entry['notebook']}", shown, *(f"  {one}" for one in given),
                      *(["", entry["about"]] if entry["about"] else [])])


def show_listing(found: list[dict], as_json: bool, whole: bool = False) -> None:
    """Prints the entries, with their parameters where they are asked for whole; broken files are named on stderr."""
    text = "\n\n".join(map(card_text, found)) if whole else listing_table(found)
    typer.echo(json.dumps(found, indent=1, ensure_ascii=False) if as_json else text)
    for sentence in catalog.left_out():
        say(sentence)


def _needs(missing: Sequence[str]) -> str:
    return "".join(f"; needs {name}: {catalog.remedy(name) or 'not here'}" for name in missing)
