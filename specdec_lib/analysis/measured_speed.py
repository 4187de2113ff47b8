"""How fast the methods of a kept run were against plain decoding, in sentences that a notebook ends with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from specdec_lib.analysis import wording
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.run_place import measured_on, sure_word
from specdec_lib.bench.results import read_turns
from specdec_lib.bench.summary import speed_ratio
from specdec_lib.types import Refusal


def speed_sentences(folder: str | Path, specs: Iterable[str]) -> list[str]:
    """For each of these methods that the run holds, whether it is told apart from plain decoding, with its interval.

    From the summary alone. Refusal if the folder holds no finished run.
    """
    report = summary_of(folder)
    told = [_beside_plain(folder, report, spec, spec) for spec in dict.fromkeys(specs)]
    return [f"Measured: {said}." for said in told if said]


def measured_sentence(folder: str | Path, spec: str, name: str = "") -> str:
    """`Measured on 12 prompts (AMD EPYC), x is ...`: one method, by this name; empty if the run lacks it."""
    report = summary_of(folder)
    said = _beside_plain(folder, report, spec, name or spec)
    return said and f"{measured_where(folder)}, {said}."


def measured_pair(folder: str | Path, base: str, spec: str, name: str, other: str) -> str:
    """As `measured_sentence`, for `spec` by this name over `base` as `other`, paired over the prompts of one run."""
    report = summary_of(folder)
    if not {base, spec} <= set(report.entries):
        return ""
    ratio = speed_ratio(read_turns(folder), base, spec)
    return f"{measured_where(folder)}, {wording.over(name, *ratio, other, sure=sure_word(report))}."


def summary_of(folder: str | Path) -> Report:
    """The finished run in a folder without its decodes, which some kept runs lack; Refusal if there is none."""
    try:
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
        return Report(dict(summary, methods=dict(summary["methods"])), ())
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _unfinished(folder, error) from None


def measured_where(folder: str | Path) -> str:
    """`Measured on 12 prompts (AMD EPYC)`; Refusal if the folder holds no finished run."""
    try:
        return measured_on(summary_of(folder))
    except (LookupError, TypeError) as error:
        raise _unfinished(folder, error) from None


def _beside_plain(folder: str | Path, report: Report, spec: str, name: str) -> str:
    try:
        if spec not in report.entries:
            return ""
        entry = report.entries[spec]
        return wording.over(name, entry["speedup"], entry["speedup_ci"], "plain decoding", sure=sure_word(report))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _unfinished(folder, error) from None


def _unfinished(folder: str | Path, error: Exception) -> Refusal:
    return Refusal(f"{folder} holds no finished run ({error}): measure one with `specdec bench`")
