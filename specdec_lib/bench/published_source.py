"""`--eagle` and `--dflash`: published drafters, from a folder or the hub, that replace trained ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from specdec_lib.bench.provenance import without_folders
from specdec_lib.heads.published import KINDS
from specdec_lib.hub import locate
from specdec_lib.types import LM, Refusal

CONVERT = locate.CONVERT_BIN
Say = Callable[[str], None]


def given_among(options: object) -> dict[str, str]:
    """Kind -> the name of its drafter, of those that these options, or this plan, name."""
    return {kind: name for kind in KINDS if (name := getattr(options, kind)) is not None}


def replaced(options: object) -> set[str]:
    """The trained drafters that these options, or this plan, replace."""
    return {KINDS[kind].stands_for for kind in given_among(options)}


def check_published(given: Mapping[str, str], needs: Collection[str]) -> None:
    """Refuses a published drafter that no method drafts with."""
    for kind in given:
        one = KINDS[kind]
        if one.stands_for not in needs:
            raise Refusal(f"no method here drafts with {one.what}: name one, such as {one.such_as}, or leave --{kind}"
                          " out")


def find_published(given: Mapping[str, str], say: Say) -> dict[str, Path]:
    """Kind -> the drafter's folder; Refusal where there is none with a config and safetensors."""
    return {kind: locate.model_folder(name, say, f"--{kind} a folder or a hub name of {KINDS[kind].what}", CONVERT)
            for kind, name in given.items()}


def load_published(given: Mapping[str, str], folders: Mapping[str, Path], target: LM, say: Say) -> dict[str, Any]:
    """The drafters by the names of those that they replace, checked for this target; a line on `say` for each."""
    loaded = {}
    for kind, folder in folders.items():
        one, short = KINDS[kind], without_folders(given[kind])
        try:
            drafter = one.load(folder, target, short)
        except Refusal as why:
            raise Refusal(f"{why}; give --{kind} another one, or leave it out") from None
        say(f"{short} drafts for methods with {one.what}: {one.told(drafter)}")
        loaded[one.stands_for] = drafter
    return loaded
