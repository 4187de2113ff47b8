"""A tiny target, its prompts and grids over them, and a cluster that runs cells in this very process."""

import json
from contextlib import contextmanager
from pathlib import Path

import yaml

from specdec_lib.sweep import work
from tests.small_bench import CURVE
from tests.training.folder import model_folder

PROMPTS = [{"question_id": 1, "category": "qa", "turns": ["a b c a b"]},
           {"question_id": 2, "category": "writing", "turns": ["red green", "blue"], "reference": ["green", "x"]},
           {"question_id": "three", "category": "rag", "turns": ["blue b c blue b"]}]
GRID = {"mode": "counting", "targets": "tiny", "dtypes": "float32", "draft": "first-layers",
        "prompts": {"file": "prompts.jsonl"}, "max_new_tokens": 8,
        "methods": ["ar", {"method": "draft-model", "parameters": {"depth": [1, 2]}}]}


def make_world(folder: Path) -> Path:
    """A folder with a target `tiny`, `prompts.jsonl` and `curve.json`."""
    model_folder(folder / "tiny")
    CURVE.save(folder / "curve.json")
    (folder / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    return folder


def write_grid(world: Path, name: str = "grid.yaml", **changes) -> Path:
    """GRID with these keys changed; a timed one has a cost curve."""
    path = world / name
    curve = {"cost": "curve.json"} if changes.get("mode") == "timing" else {}
    path.write_text(yaml.safe_dump(GRID | curve | changes, sort_keys=False))
    return path


@contextmanager
def in_process(address=None, run_cell=work.run_cell):
    """Stands in for `cluster.start`: cells run one after the other, here."""
    work.loaded.cache_clear()
    yield lambda cells: ((cell, run_cell(cell, cell.cores or 1, True)) for cell in cells)


@contextmanager
def nowhere(address=None):
    """Stands in for `cluster.start` where nothing may be run."""
    raise AssertionError("a cluster was started")
    yield
