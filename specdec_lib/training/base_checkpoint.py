"""Recipes that start from a checkpoint: another drafter as their base, or an earlier one of their own name."""

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
from specdec_lib.training.recipes import RECIPES, Recipe
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


def go_on_from(which: Recipe, folder: Path | None, target: Target, text: Tokenizer | None, name: str,
               say: Callable[[str], None] = lambda line: None) -> Recipe:
    """The recipe starting from the trained checkpoint of its own name in `folder`; unchanged without a folder.

    Raises Refusal where the folder holds none, and where that one was made for another kind of target.
    """
    if folder is None:
        return which
    found = CheckpointFolder(folder, target, text, name, say)
    if which.name not in found:
        held = ", ".join(found) or "no checkpoint"
        raise Refusal(f"there is no {which.name} in {folder} to go on from; it holds {held}")
    say(f"going on from the {which.name} in {folder}")
    return replace(which, begun=found[which.name])


def refuse_going_on(name: str) -> None:
    """Raises Refusal unless a trained drafter of this name can be trained on, which takes matrices stored whole.

    A second difference of low rank on top of a first one would not fit into the rank that is stored.
    """
    able = [one for one, which in RECIPES.items() if not any("+rank" in scheme for scheme in which.plan.values())]
    if name not in able:
        raise Refusal(f"--from is for {', '.join(able)}, got it for {name}")


def begun_from(which: Recipe) -> dict:
    """What the card says of the earlier checkpoint: its checksum, and the tokens it had seen; empty without one."""
    if which.begun is None:
        return {}
    card = which.begun.card
    return {"begun_from": {"sha256": card["sha256"], "tokens_seen": card.get("made", {}).get("tokens_seen")}}


def lineage(folder: Path, name: str) -> list[str]:
    """A checkpoint of this folder, its base, the base of that one, and so on."""
    above = read_card(folder, name)["settings"].get("base")
    return [name, *(lineage(folder, above["name"]) if above else [])]


def copy_folder(source: Path, place: Path) -> None:
    """Copies a folder completely or not at all."""
    write_folder(place, lambda rough: shutil.copytree(source, rough, dirs_exist_ok=True))
