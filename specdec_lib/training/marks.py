"""What a folder of training was begun with: its target, where its fit started, its recipe. Another one is refused."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specdec_lib.files import write_text
from specdec_lib.training.fit import STATE
from specdec_lib.training.recipes import Recipe
from specdec_lib.types import Refusal

RECIPE = "recipe.json"
OTHER = "a target with other weights, or with another --system or other --template-switches"


def mark_folder(work: Path, target: str, another: str = OTHER, option: str = "--out") -> None:
    """Marks a folder of answers, features and fits with its target or base; Refusal if it has another mark."""
    path = work / "target"
    if not path.is_file():
        work.mkdir(parents=True, exist_ok=True)
        write_text(path, target)
    if path.read_text(encoding="utf-8", errors="replace") != target:
        raise Refusal(f"{work} was begun for {another}: give another {option}, or delete it")


def mark_start(folder: Path, which: Recipe) -> None:
    """Marks the folder of a fit with the checkpoint it starts from, if any; Refusal if it was begun from another."""
    origin = which.begun or which.base
    if origin is None and not (folder / "target").is_file():
        return
    whose = f"another {which.upon}" if which.base else f"another start of {which.name}"
    if origin is not None and (folder / STATE).is_file() and not (folder / "target").is_file():
        raise Refusal(f"{folder} was begun for {whose}: give another --out, or delete it")
    mark_folder(folder, origin.card["sha256"] if origin else "the target's layers", whose)


def mark_recipe(folder: Path, recipe: Mapping[str, Any]) -> None:
    """Marks the folder of a fit with its recipe, plain data by name; Refusal where a saved fit was begun with another.

    A resumed fit goes on with the weights that it has, so what the card says of their making must not change. A fit
    that was saved without a mark takes this one, and a mark without an entry takes this entry.
    """
    path, told = folder / RECIPE, json.loads(json.dumps(recipe))
    if (folder / STATE).is_file() and path.is_file():
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            other = [f"{name} ({kept[name]} there, {told[name]} here)" for name in told
                     if kept.get(name, told[name]) != told[name]]
        except (OSError, ValueError, AttributeError) as error:
            raise Refusal(f"{path} is damaged ({type(error).__name__}): delete {folder}, and the fit starts again"
                          ) from None
        if other:
            raise Refusal(f"{folder} holds a fit that was begun with another recipe, {', '.join(other)}: repeat it,"
                          " give another --out, or delete it")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def texts_sum(texts: Iterable[tuple[int, ...]]) -> str:
    """A short checksum of texts of token ids, in their order."""
    found = hashlib.sha256()
    for tokens in texts:
        found.update(array("q", (len(tokens), *tokens)).tobytes())
    return found.hexdigest()[:12]
