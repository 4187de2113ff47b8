"""The rows of a finished run that a notebook ends with: predicted and measured speed, and how they compare."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.types import Refusal


def place(predicted: float | None, interval: tuple[float, float] | list[float] | None) -> str:
    """Where a prediction lies beside the interval of what was measured, at the two digits that tables show."""
    if predicted is None or interval is None:
        return "no prediction" if predicted is None else "no interval"
    at, low, high = (round(value, 2) for value in (predicted, *interval))
    return "in the interval" if low <= at <= high else "above it" if at > high else "below it"


def is_busy(report: Report) -> bool:
    """Whether the run warns that its machine was busy: then its intervals are too narrow."""
    return any("busy" in warning for warning in report.warnings)


def machine(report: Report) -> str:
    """By how much of their median the forwards of plain decoding spread; `busy` where the run warns of that."""
    spread = report.summary.get("settings", {}).get("spread_within_decode")
    return f"{'busy' if is_busy(report) else 'calm'}{'' if spread is None else f' ({spread:.0%})'}"


def result_rows(report: Report, specs: Iterable[str]) -> list[dict]:
    """A row for each of these methods in the run: predicted and measured speed, and what is between them."""
    return [_row(spec, report.entries[spec], machine(report)) for spec in dict.fromkeys(specs)
            if spec in report.entries]


def _row(spec: str, entry: dict, state: str) -> dict:
    predicted = entry.get("expected_speedup")
    return {"method": spec if entry.get("lossless") is not False else f"{spec} (lossy)", "prompts": entry["prompts"],
            "tokens per forward": entry["tokens_per_target_forward"], "predicted speed": predicted,
            "measured speed": entry["speedup"], "95 % interval": interval_text(entry["speedup_ci"]),
            "the prediction is": place(predicted, entry["speedup_ci"]), "machine": state}


def kept_rows(folder: str | Path, specs: Iterable[str]) -> list[dict]:
    """The rows of a run kept in this folder, from its summary alone; Refusal if it holds no finished run."""
    path = Path(folder) / "summary.json"
    try:
        return result_rows(Report(json.loads(path.read_text(encoding="utf-8")), ()), specs)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Refusal(f"{folder} holds no finished run ({error}): measure one with `specdec bench`") from None
