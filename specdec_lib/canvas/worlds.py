"""Worlds by name: a model of canvases with tasks, found by one function.

Each world stands in a file of its own, `canvas/world_NAME.py`, with one function

    open_world(limit: int, seed: int, folder: Path | None) -> CanvasWorld

`limit` is the number of tasks (the same first ones for every limit), `seed` chooses them where they are generated, and
`folder` holds the world's model instead of the shipped checkpoints. It raises Refusal, in one sentence, where the
world's model is not there. Nothing is loaded before it is called.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from specdec_lib.canvas.types import CanvasWorld
from specdec_lib.types import Refusal

WORLDS = {"table": "three tokens with an exact joint distribution", "sudoku": "9 x 9 boards and a small trained model",
          "text": "answers of the default target and its bidirectional drafter"}


def open_world(name: str, limit: int, seed: int = 0, folder: Path | None = None) -> CanvasWorld:
    """The world of this name with its first `limit` tasks; Refusal for an unknown name or a missing model.

    `folder` holds trained checkpoints; None: the shipped ones.
    """
    if name not in WORLDS:
        raise Refusal(f"there is no world named {name!r}; there are: {', '.join(WORLDS)}")
    if limit < 1:
        raise Refusal(f"--limit must be at least 1, got {limit}")
    return import_module(f"specdec_lib.canvas.world_{name}").open_world(limit, seed, folder=folder)
