"""The row of a finished run that a notebook ends with: predicted and measured speed, and whether they agree."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.types import Refusal


def agreement(predicted: float | None, interval: tuple[float, float] | list[float] | None) -> str:
    """Whether a prediction lies within the interval of what was measured."""
    if predicted is None or interval is None:
        return "not comparable: " + ("no prediction" if predicted is None else "no interval")
    low, high = interval
    return "agree" if low <= predicted <= high else "predicted faster" if predicted > high else "predicted slower"


def result_rows(report: Report, specs: Iterable[str]) -> list[dict]:
    """A row for each of these methods in the run: speed predicted from the cost curve, measured speed, verdict."""
    return [_row(spec, report.entries[spec]) for spec in dict.fromkeys(specs) if spec in report.entries]


def _row(spec: str, entry: dict) -> dict:
    predicted = entry.get("expected_speedup")
    return {"method": spec, "prompts": entry["prompts"], "tokens per forward": entry["tokens_per_target_forward"],
            "predicted speed": predicted, "measured speed": entry["speedup"],
            "95 % interval": interval_text(entry["speedup_ci"]), "they": agreement(predicted, entry["speedup_ci"])}


def kept_rows(folder: str | Path, specs: Iterable[str]) -> list[dict]:
    """The rows of a run kept in this folder, from its summary alone; Refusal if it holds no finished run."""
    path = Path(folder) / "summary.json"
    try:
        return result_rows(Report(json.loads(path.read_text(encoding="utf-8")), ()), specs)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise Refusal(f"{folder} holds no finished run ({error}): measure one with `specdec bench`") from None
