"""Recipes that start from another checkpoint: finds that base and puts it beside the new checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from specdec_lib.checkpoints.card import read_card
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder
from specdec_lib.checkpoints.trainable import training_command
from specdec_lib.files import write_folder
from specdec_lib.heads.base import Target
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.training.recipes import Recipe
from specdec_lib.types import Refusal


def start_from_base(which: Recipe, out: Path, target: Target, text: Tokenizer | None, name: str,
                    shipped: Path = SHIPPED, say: Callable[[str], None] = lambda line: None) -> Recipe:
    """The recipe with its base checkpoint, if it has one: the one in `out`, else the shipped one.

    A shipped base is copied into `out`, since a difference is read with its base beside it. `name` is the target's.
    Raises Refusal where there is neither, and where the base was made for another kind of target.
    """
    if not which.upon:
        return which
    here = CheckpointFolder(out, target, text, name, say)
    found = here if which.upon in here else CheckpointFolder(shipped, target, text, name, say)
    if which.upon not in found:
        raise Refusal(f"{which.name} goes on from the checkpoint {which.upon}, and there is none in {out}: "
                      f"{training_command(which.upon, name, out)} makes it")
    base = found[which.upon]
    if found is not here:
        say(f"{which.name} starts from the shipped {which.upon}, which is copied into {out}")
        for name in lineage(shipped, which.upon):
            if name not in here:
                copy_folder(shipped / name, out / name)
    return replace(which, base=base)


def lineage(folder: Path, name: str) -> list[str]:
    """A checkpoint of this folder, its base, the base of that one, and so on."""
    above = read_card(folder, name)["settings"].get("base")
    return [name, *(lineage(folder, above["name"]) if above else [])]


def copy_folder(source: Path, place: Path) -> None:
    """Copies a folder completely or not at all."""
    write_folder(place, lambda rough: shutil.copytree(source, rough, dirs_exist_ok=True))
