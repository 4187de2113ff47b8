"""How long controls take: what a run of the browser tests keeps, and its median and worst."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

GOAL = {"median_ms": 100, "worst_ms": 300}         # on two cores


def summary(controls: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Milliseconds by notebook and control, to a tenth, with the median and the worst of all."""
    taken = {(book, name): value for book, ones in controls.items() for name, value in ones.items()}
    if not taken:
        raise ValueError("no control was moved")
    slowest = max(taken, key=taken.__getitem__)
    return {"median_ms": round(median(taken.values()), 1), "worst_ms": round(taken[slowest], 1),
            "worst": ": ".join(slowest), "controls_moved": len(taken), "notebooks": len(controls), "goal": GOAL,
            "controls": {book: {name: round(value, 1) for name, value in ones.items()}
                         for book, ones in sorted(controls.items())}}


def keep(path: Path, kind: str, controls: Mapping[str, Mapping[str, float]], provenance: Mapping[str, Any]) -> None:
    """Writes the summary of one kind of page, `exported` or `jupyterlab`, beside what the file holds of the other."""
    held = json.loads(path.read_text()) if path.is_file() else {}
    held[kind] = {**summary(controls), "provenance": dict(provenance)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n")
