"""The recordings that a notebook replays: the shipped ones, or those in a folder that `specdec record` made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError, safe_open

from specdec_lib.by_name import ByName
from specdec_lib.models.by_drafter import to_add
from specdec_lib.models.replay import Recording, load_recording, shipped_recordings
from specdec_lib.types import Refusal

T = TypeVar("T")
SHORTEST = 12                                      # output tokens; of fewer some figures show nothing


def by_family(values: Mapping[str, T]) -> ByName[T]:
    """A value for each family; Refusal names the families where one is asked for that is not there."""
    return ByName(values, "recording of the `family`")


def find_recordings(folder: Path | str = "shipped") -> ByName[Path]:
    """The files by family: "shipped" for those of the workbook, else those in a folder.

    Refusal without any, and for an answer that is too short for a notebook.
    """
    found = shipped_recordings() if folder == "shipped" else shipped_recordings(Path(folder))
    if not found:
        raise Refusal(f"there are no recordings in {folder}: make some with `specdec record --out {folder}`")
    for family, path in found.items():
        tokens = output_tokens(path)
        if tokens is not None and tokens < SHORTEST:
            raise Refusal(f"the recording of {family} has {tokens} output tokens, and notebooks need {SHORTEST}: record"
                          f" a longer answer, or remove {path.name} from {path.parent}")
    return by_family(found)


def output_tokens(path: Path) -> int | None:
    """The tokens of a recorded answer, from the file's header; None for a damaged file."""
    try:
        with safe_open(path, "pt") as file:
            return file.get_slice("tokens").get_shape()[0] - int(file.metadata()["prompt"])
    except (SafetensorError, LookupError, ValueError, TypeError, OSError):
        return None


def load_recordings(folder: Path | str | Mapping[str, Recording] = "shipped") -> ByName[Recording]:
    """The recordings by family; those that are loaded are returned as they are, so that a cell can run twice."""
    if isinstance(folder, Mapping):
        return by_family(folder)
    return by_family({family: load_recording(path) for family, path in find_recordings(folder).items()})


def recorded_drafters(recordings: Mapping[str, Recording], names: Iterable[str]) -> list[str]:
    """Those of these drafters that every recording holds; Refusal where there are none."""
    asked = list(names)
    found = [name for name in asked if all(name in one.drafts for one in recordings.values())]
    if not found:
        raise Refusal(f"not all recordings hold any of {', '.join(asked)}: add one with"
                      f" {to_add(asked[0])}")
    return found


def with_lattices(recordings: Mapping[str, Recording], drafter: str) -> ByName[Recording]:
    """The recordings that hold the lattices of this drafter; Refusal where none does."""
    found = by_family({family: one for family, one in recordings.items() if drafter in one.lattices})
    if not found:
        raise Refusal(f"no recording holds the slots of {drafter}: add them with"
                      f" {to_add(drafter)}")
    return found
