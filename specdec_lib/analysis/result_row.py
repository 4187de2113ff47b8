"""The rows of a finished run that a notebook ends with: predicted and measured speed, and how they compare.

Two methods of one run are compared by their own ratio, paired over prompts: it is surer than their two intervals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from specdec_lib.analysis.bench_report import QUALITIES, Report, load_report
from specdec_lib.analysis.report_text import estimate_text, interval_text
from specdec_lib.analysis.run_place import is_busy, sure_word
from specdec_lib.analysis.verification_tradeoff import parse_rule_spec
from specdec_lib.analysis.wording import over, verdict
from specdec_lib.bench import summary
from specdec_lib.types import Refusal


def place(predicted: float | None, interval: tuple[float, float] | list[float] | None) -> str:
    """Where a prediction lies beside the interval of what was measured, at the two digits that tables show."""
    if predicted is None or interval is None:
        return "no prediction" if predicted is None else "no interval"
    at, low, high = (round(value, 2) for value in (predicted, *interval))
    return "in the interval" if low <= at <= high else "above it" if at > high else "below it"


def machine(report: Report) -> str:
    """By how much of their median the forwards of plain decoding spread; `busy` where the run warns of that."""
    spread = report.summary.get("settings", {}).get("spread_within_decode")
    return f"{'busy' if is_busy(report) else 'calm'}{'' if spread is None else f' ({spread:.0%})'}"


def result_rows(report: Report, specs: Iterable[str]) -> list[dict]:
    """A row for each of these methods in the run: predicted and measured speed, and what is between them."""
    found = [spec for spec in dict.fromkeys(specs) if spec in report.entries]
    return [_row(named(report, spec, found), report.entries[spec], machine(report)) for spec in found]


def named(report: Report, spec: str, others: Iterable[str]) -> str:
    """The spec, with `lossy` behind it if it is, and with its rule where `others` hold it under another one."""
    ruled = "@" not in spec and any(other.startswith(f"{spec}@") for other in others)
    told = [parse_rule_spec(spec)[1]] if ruled else []
    told += ["lossy"] if report.entries[spec].get("lossless") is False else []
    return f"{spec} ({', '.join(told)})" if told else spec


def _row(name: str, entry: dict, state: str) -> dict:
    predicted = entry.get("expected_speedup")
    return {"method": name, "prompts": entry["prompts"], "tokens per forward": entry["tokens_per_target_forward"],
            "predicted speed": predicted, "measured speed": entry["speedup"],
            "95 % interval": interval_text(entry["speedup_ci"]),
            "the prediction is": place(predicted, entry["speedup_ci"]), "machine": state}


def kept_rows(folder: str | Path, specs: Iterable[str]) -> list[dict]:
    """The rows of a run kept in this folder, from its summary alone; Refusal if it holds no finished run."""
    path = Path(folder) / "summary.json"
    try:
        return result_rows(Report(json.loads(path.read_text(encoding="utf-8")), ()), specs)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Refusal(f"{folder} holds no finished run ({error}): measure one with `specdec bench`") from None


def paired_sentences(report: Report, specs: Iterable[str]) -> list[str]:
    """For each of these methods but the first: how many times as fast as the first it is, paired over prompts.

    They begin with the temperature of the run. Methods that the run does not hold are left out.
    """
    found = [spec for spec in dict.fromkeys(specs) if spec in report.entries]
    heat = report.summary.get("settings", {}).get("temperature") or 0
    names = {spec: named(report, spec, found) for spec in found}
    ratios = {spec: summary.speed_ratio(report.decodes, found[0], spec) for spec in found[1:]}
    return [f"At temperature {heat:g}, {over(names[spec], *ratio, names[found[0]], sure=sure_word(report))}."
            for spec, ratio in ratios.items()]


def kept_sentences(folder: str | Path, specs: Iterable[str]) -> list[str]:
    """The sentences of `paired_sentences` on the run kept in this folder."""
    return paired_sentences(load_report(folder), specs)


def quality_sentence(report: Report, spec: str) -> str:
    """How each measure of quality of this method differs from plain decoding's, paired over prompts."""
    moved = {gate: found for gate, found in summary.quality_change(report.decodes, "ar", spec).items()
             if found[0] is not None}
    told = [f"{QUALITIES[gate]} {estimate_text(*found, signed=True)}, {_direction(gate, found[1])}"
            for gate, found in moved.items()]
    return f"{named(report, spec, ())} minus plain decoding: {'; '.join(told) or 'no measure'}."


def _direction(gate: str, interval: tuple[float, float] | list[float] | None) -> str:
    """The word for a change of this measure; of the NLL, what it says of the text."""
    more, less = ("higher", "lower") if gate != "target_nll" else ("less likely", "likelier")
    return verdict(interval, more, less, "not told apart", 0.0)
