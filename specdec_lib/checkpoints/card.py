"""A checkpoint's card: plain data beside its weights on how it was made, what was measured, and its limits.

Keys: name, target {name, fingerprint}, parameters, bytes, sha256, made {command, commit, date, machine, device,
minutes, tokens_seen, data}, settings, measured, limits [sentences], storage {tensor: {scheme, relative_error}};
and break_even, where it was measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from specdec_lib.checkpoints.trainable import training_command
from specdec_lib.files import write_text
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "checkpoints"
CARD, WEIGHTS = "card.json", "model.safetensors"
OWN_FILES = {WEIGHTS, "README.md", "log.jsonl.gz"}             # of a checkpoint, besides its card
KINDS = {"name": str, "target": dict, "parameters": int, "bytes": int, "sha256": str, "made": dict, "settings": dict,
         "measured": dict, "limits": list, "storage": dict}
RATE = "tokens_per_target_forward"                 # of a drafter's part, as it was measured
SAMPLE = re.compile("([0-9a-f]{4})*")              # of a target's weights: bfloat16 in hexadecimal
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


def lacking_in(card: Mapping[str, Any]) -> list[str]:
    """What a card needs so that it can be written, and does not have."""
    return [key for key in (*GIVEN, "parameters") if key not in card]


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
    except (OSError, ValueError, RecursionError):
        card = None
    if not is_card(card):
        raise Refusal(f"{path} is no readable card: copy the checkpoint again or make it with `specdec train {name}`")
    return card


def refuse_other_folder(folder: str | Path, name: str) -> None:
    """Refuses FOLDER/NAME where something else than a checkpoint is, whose files a training would write over."""
    place = Path(folder) / name
    if place.exists() and not place.is_dir():
        raise Refusal(f"{place} is a file, and the checkpoint {name} is a folder there: give another --out")
    if not place.is_dir() or (place / CARD).is_file():
        return
    there = {path.name for path in place.iterdir() if ".partial-" not in path.name}
    if there - OWN_FILES or there and WEIGHTS not in there:            # a kill before the card leaves the weights
        raise Refusal(f"{place} holds {sorted(there - OWN_FILES or there)[0]} and no {CARD}, so it is no checkpoint of"
                      f" `specdec train`: give another --out")


def is_card(card: Any) -> TypeGuard[dict]:
    """Whether this has what a checkpoint is found and compared by, and every other part is of its readers' kind."""
    if not isinstance(card, dict) or not all(isinstance(card.get(name, kind()), kind) for name, kind in KINDS.items()):
        return False
    if not {"bytes", "sha256", "target"} <= card.keys():
        return False
    made_for, storage = card["target"].get("fingerprint"), card.get("storage", {})
    return (isinstance(card["target"].get("name"), str) and isinstance(made_for, dict)
            and all(value is None or isinstance(value, str) for value in made_for.values())
            and SAMPLE.fullmatch(made_for.get("weights") or "") is not None
            and all(isinstance(sentence, str) for sentence in card.get("limits", ()))
            and all(map(says_how_stored, storage.values()))
            and all(has_rates(card.get("measured", {}).get(kind, {})) for kind in ("teacher-forced", "live")))


def says_how_stored(entry: Any) -> bool:
    """Whether a card's entry on a stored tensor names its scheme and its error."""
    return isinstance(entry, dict) and isinstance(entry.get("scheme"), str) and is_number(entry.get("relative_error"))


def has_rates(measured: Any) -> bool:
    """Whether what was measured by parts of a drafter gives the tokens per target forward of each, or None."""
    return isinstance(measured, dict) and all(
        isinstance(part, dict) and (part.get(RATE) is None or is_number(part[RATE])) for part in measured.values())


def is_number(value: object) -> bool:
    """Whether this is a number and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


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
