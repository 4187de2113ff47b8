"""Cells of a measurement on a GPU: one forward each, timed until its result is on the host; written one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from specdec_lib.bench.provenance import provenance
from specdec_lib.files import refuse_special, write_text
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import size_of
from specdec_lib.types import Draft, Refusal

WARM = 3                                           # forwards that are not timed: the first one captures the step
REPEATS, LONGEST = 21, 2.0                         # timed forwards of a cell, and the seconds that they may take
GIB = 2 ** 30
LAYER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
         "mlp.up_proj", "mlp.down_proj")


class OutOfTime(Exception):
    """The minutes are used up; what is written stays."""


class CellFile:
    """A JSON file of cells, each with a key; a cell that is there is not measured again, unless it is an error."""

    def __init__(self, path: Path, settings: Mapping[str, Any]):
        self.path = path
        self.held: dict[str, Any] = {"settings": dict(settings), "finished": False, "provenance": provenance(),
                                     "cells": []}
        if path.exists():
            self.held = kept_cells(path, self.held["settings"])
            fine = [cell for cell in self.cells if "error" not in cell]
            self.held |= {"cells": fine, "finished": self.held["finished"] and len(fine) == len(self.cells)}

    @property
    def cells(self) -> list[dict]:
        return self.held["cells"]

    def once(self, key: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> None:
        """Measures and writes this cell unless it is there; an error of the device is its result."""
        if any(all(cell.get(name) == value for name, value in key.items()) for cell in self.cells):
            return
        try:
            found = dict(measure())
        except RuntimeError as error:
            found = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no text'}"}
        self.cells.append({**key, **found})
        self.write()

    def finish(self, **more: Any) -> None:
        self.held |= {**more, "finished": True}
        self.write()

    def write(self) -> None:
        write_text(self.path, json.dumps(self.held, indent=1) + "\n")


def kept_cells(path: Path, settings: Mapping[str, Any]) -> dict:
    """What the file of an earlier run holds; Refusal where it is damaged, or of another target, device or dtype."""
    held = read_object(path)
    cells = held.get("cells")
    if type(held.get("finished")) is not bool or not isinstance(cells, list) or not all(
            isinstance(cell, dict) for cell in cells):
        raise Refusal(f"{path} is damaged: remove it and run the same command again, or give another --out")
    if held.get("settings") != settings:
        raise Refusal(f"{path} was measured with {held.get('settings')} and this run has {settings}:"
                      " give another --out")
    return held


def read_object(path: Path) -> dict:
    """The JSON object in a file that this command wrote; Refusal for anything else."""
    refuse_special(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refusal(f"{path} is not there") from None
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refusal(f"{path} is damaged: remove it and run the same command again, or give another --out")
    return found


def wait(device: torch.device) -> None:
    """Returns when the device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(device: torch.device, work: Callable[[int], Any], repeats: int = REPEATS) -> dict[str, float]:
    """Median and fastest seconds of `work(repeat)`, each until the device is done."""
    took: list[float] = []
    for repeat in range(WARM + repeats):
        wait(device)
        start = perf_counter()
        work(repeat)
        wait(device)
        took.append(perf_counter() - start)
        if repeat > WARM and sum(took[WARM:]) > LONGEST:
            break
    return {"seconds": median(took[WARM:]), "fastest": min(took[WARM:]), "repeats": len(took) - WARM}


def forward_cell(lm: Transformer, context: int, width: int) -> dict[str, float]:
    """One forward of `width` new rows after `context` rows, until its statistics are on the host.

    `device_seconds` is a captured step alone, launched again and again without a host between.
    """
    vocab = min(1000, lm.vocab)
    base = tuple(i * 7 % vocab for i in range(context))
    lm.prefill(base)

    def once(repeat: int) -> None:
        last = (1 + repeat) % vocab                # a new token each time, or cached logits are returned
        draft = Draft(tuple((last + i) % vocab for i in range(1, width)), tuple(range(-1, width - 2)))
        assert lm((*base, last), draft).best
    found = timed(lm.device, once)
    step = lm.lease.held.last if lm.lease is not None else None
    if step is None or step.width < width:
        return found
    return {**found, "device_seconds": replayed(lm.device, step.launch)}


def replayed(device: torch.device, launch: Callable[[], Any], count: int = 20) -> float:
    """Seconds of one launch among many in a row."""
    with torch.inference_mode():
        launch()
        wait(device)
        start = perf_counter()
        for _ in range(count):
            launch()
        wait(device)
    return (perf_counter() - start) / count


def prefill_cell(lm: Transformer, context: int) -> dict[str, float]:
    """All rows of a text at once, with nothing cached: what a drafter without a cache pays each round."""
    vocab = min(1000, lm.vocab)

    def once(repeat: int) -> None:
        lm.prefill(tuple((repeat + i * 7) % vocab for i in range(context)))
    return timed(lm.device, once, 7)


def bandwidth(device: torch.device, size: int) -> float:
    """Bytes a second that a large copy on the device reads and writes."""
    one = torch.zeros(size, dtype=torch.uint8, device=device)
    other = torch.empty_like(one)
    return 2 * size / timed(device, lambda repeat: other.copy_(one), 11)["fastest"]


def bytes_read(shape: LlamaConfig, dtype: torch.dtype, context: int = 0) -> int:
    """Bytes that one forward reads at least: the matrices, the head, and keys and values of the context."""
    layer = sum(rows * into for rows, into in (size_of(shape, f"model.layers.0.{name}.weight") for name in LAYER))
    kept = 2 * shape.layers * shape.kv_heads * shape.head_dim * context
    return dtype.itemsize * (shape.layers * layer + shape.vocab * shape.hidden + kept)
