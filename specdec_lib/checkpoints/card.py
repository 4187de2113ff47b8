"""A checkpoint's card: plain data beside its weights on how it was made, what was measured, and its limits.

Keys: name, target {name, fingerprint}, parameters, bytes, sha256, made {command, commit, date, machine, device,
minutes, tokens_seen, data}, settings, measured, limits [sentences], storage {tensor: {scheme, relative_error}};
and break_even, where it was measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specdec_lib.checkpoints.trainable import training_command
from specdec_lib.files import write_text
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "checkpoints"
CARD = "card.json"
GIVEN = ("target", "made", "settings", "measured", "limits")       # by the training; saving fills in the rest
SECTIONS = {"made": "How it was made", "settings": "Settings", "measured": "Measured",
            "break_even": "Break-even: costs in plain forwards, expected and measured"}


def shelf_at(folder: Path | None) -> Path:
    """The folder of checkpoints, by default the shipped one; Refusal if the given one does not exist."""
    if folder is not None and not folder.is_dir():
        raise Refusal(f"there is no folder of checkpoints at {folder}: check the path")
    return SHIPPED if folder is None else folder


def checkpoint_names(folder: str | Path) -> list[str]:
    """The checkpoints in a folder, by name; empty where there is no such folder."""
    return sorted(path.parent.name for path in Path(folder).glob(f"*/{CARD}"))


def write_card(folder: str | Path, name: str, card: Mapping[str, Any]) -> None:
    """Replaces FOLDER/NAME/card.json and its README.md; ValueError for what JSON cannot hold."""
    place = Path(folder) / name
    text = json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(place / "README.md", card_text(card))
    write_text(place / CARD, text)


def read_card(folder: str | Path, name: str, target: str = "") -> dict:
    """The card of FOLDER/NAME; Refusal, which advises to train it for `target`, without a readable one."""
    path = Path(folder) / name / CARD
    if not path.is_file():
        raise Refusal(f"there is no checkpoint {name} in {folder}: {training_command(name, target)} makes it")
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        needed = card["bytes"], card["sha256"], card["target"]["fingerprint"].items(), card["target"]["name"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        needed = None
    if not needed:
        raise Refusal(f"{path} is no readable card: copy the checkpoint again or make it with `specdec train {name}`")
    return card


def card_text(card: Mapping[str, Any]) -> str:
    """The card as markdown, section by section."""
    size = f"{card['parameters'] / 1e6:.2f} million parameters in {card['bytes'] / 1e6:.2f} MB"
    out = [f"# {card['name']}", "", f"Trained for {card['target']['name']}: {size}."]
    for key, title in SECTIONS.items():
        if card.get(key):
            out += ["", f"## {title}", "", *card_lines(card[key])]
    if card.get("limits"):
        out += ["", "## Limits", "", *(f"- {sentence}" for sentence in card["limits"])]
    if card.get("storage"):
        rows = (f"| {name} | {how['scheme']} | {how['relative_error']:.2%} |" for name, how in card["storage"].items())
        out += ["", "## Stored as", "", "| tensor | scheme | relative error |", "|---|---|---|", *rows]
    return "\n".join(out) + "\n"


def card_lines(values: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """One bullet for each value, with the keys that lead to it."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from card_lines(value, f"{before}{name}, ")
        else:
            words = ", ".join(map(plain_value, value)) if isinstance(value, list | tuple) else plain_value(value)
            yield f"- {before}{name}: {f'`{words}`' if name == 'command' else words}"


def plain_value(value: Any) -> str:
    """A value as text: four digits of a fraction, `not known` for None."""
    return "not known" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
