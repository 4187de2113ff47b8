"""`specdec methods`, `specdec parts`: the catalogue as plain data and as a table, with what is missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import typer

from specdec_lib import catalog
from specdec_lib.cards import Card, Kit
from specdec_lib.checkpoints.card import SHIPPED, checkpoint_names
from specdec_lib.commands.exit_codes import say
from specdec_lib.types import LM


def bare_kit(shelf: Path = SHIPPED) -> Kit:
    """What every run has: a target, a draft model (see `bench/draft_source.py`), the checkpoints in a folder."""
    here = cast(LM, object())                      # only asked whether it is there
    return Kit(target=here, draft=here, checkpoints=dict.fromkeys(checkpoint_names(shelf)))


def list_methods(shelf: Path = SHIPPED) -> list[dict]:
    """Every assembled method: name, idea, source, lossless, needs, available, missing. No checkpoint is read."""
    return [_entry(card, bare_kit(shelf)) for card in catalog.methods().values()]


def list_parts(shelf: Path = SHIPPED) -> list[dict]:
    """Every part, with its room."""
    return [{"room": room, **_entry(card, bare_kit(shelf))} for room, cards in catalog.parts().items()
            for card in cards.values()]


def _entry(card: Card, kit: Kit) -> dict:
    missing = catalog.missing(card, kit)
    return {"name": card.name, "idea": card.idea, "source": card.source, "lossless": card.lossless,
            "needs": list(card.needs), "available": not missing, "missing": missing}


def listing_table(entries: Sequence[dict]) -> str:
    """One line each, in columns: name, losslessness, idea, and how to get what is missing."""
    wide = max((len(entry["name"]) for entry in entries), default=0)
    return "\n".join(f"{entry.get('room', ''):5}"[:5 * ("room" in entry)]
                     + f"{entry['name']:{wide}}  {'lossless' if entry['lossless'] else 'lossy   '}  "
                     + f"{entry['idea']} ({entry['source']}){_needs(entry['missing'])}" for entry in entries)


def show_listing(found: list[dict], as_json: bool) -> None:
    """Prints the entries; files whose card cannot be used are named on stderr."""
    typer.echo(json.dumps(found, indent=1, ensure_ascii=False) if as_json else listing_table(found))
    for sentence in catalog.left_out():
        say(sentence)


def _needs(missing: Sequence[str]) -> str:
    return "".join(f"; needs {name}: {catalog.remedy(name) or 'not here'}" for name in missing)
