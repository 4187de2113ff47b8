"""How fast the methods of a kept run were against plain decoding, in sentences that a notebook ends with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from specdec_lib.analysis import wording
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.result_row import is_busy
from specdec_lib.bench.results import read_turns
from specdec_lib.bench.summary import speed_ratio
from specdec_lib.types import Refusal


def speed_sentences(folder: str | Path, specs: Iterable[str]) -> list[str]:
    """For each of these methods that the run holds, whether it is told apart from plain decoding, with its interval.

    From the summary alone. Refusal if the folder holds no finished run.
    """
    summary = _summary(folder)
    told = [_beside_plain(folder, summary, spec, spec) for spec in dict.fromkeys(specs)]
    return [f"Measured: {said}." for said in told if said]


def measured_sentence(folder: str | Path, spec: str, name: str = "") -> str:
    """`Measured on 12 prompts (AMD EPYC), x is ...`: one method, by this name; empty if the run lacks it."""
    said = _beside_plain(folder, _summary(folder), spec, name or spec)
    return said and f"{measured_on(folder, spec)}, {said}."


def measured_pair(folder: str | Path, base: str, spec: str, name: str, other: str) -> str:
    """As `measured_sentence`, for `spec` by this name over `base` as `other`, paired over the prompts of one run."""
    methods = _summary(folder).get("methods", {})
    if base not in methods or spec not in methods:
        return ""
    ratio = speed_ratio(read_turns(Path(folder)), base, spec)
    return f"{measured_on(folder, spec)}, {wording.over(name, *ratio, other, sure=_sure(_summary(folder)))}."


def measured_on(folder: str | Path, spec: str = "ar") -> str:
    """`Measured on 12 prompts (AMD EPYC)`: of this method in a kept run; Refusal if there is none."""
    summary = _summary(folder)
    try:
        count = summary["methods"][spec]["prompts"]
        return f"Measured on {count} prompt{'' if count == 1 else 's'} ({machine_of(folder)})"
    except (LookupError, TypeError) as error:
        raise _unfinished(folder, error) from None


def machine_of(folder: str | Path) -> str:
    """The accelerator or the processor of a kept run; Refusal if there is none."""
    try:
        machine = _summary(folder)["machine"]
        return machine["gpu"] or short(machine["processor"])
    except (LookupError, TypeError) as error:
        raise _unfinished(folder, error) from None


def short(processor: str) -> str:
    """`Intel Xeon` of `Intel(R) Xeon(R) Processor`: the name without marks, frequency and the words that all share."""
    return " ".join(re.sub(r"\((R|TM)\)|\b(Processor|CPU)\b|@.*", " ", processor, flags=re.IGNORECASE).split())


def _beside_plain(folder: str | Path, summary: dict, spec: str, name: str) -> str:
    try:
        if spec not in summary["methods"]:
            return ""
        entry = summary["methods"][spec]
        return wording.over(name, entry["speedup"], entry["speedup_ci"], "plain decoding", sure=_sure(summary))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _unfinished(folder, error) from None


def _sure(summary: dict) -> str:
    """What stands before a verdict: nothing where the machine was busy, since intervals are too narrow then."""
    return "" if is_busy(Report(summary, ())) else "surely "


def _summary(folder: str | Path) -> dict:
    try:
        return json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unfinished(folder, error) from None


def _unfinished(folder: str | Path, error: Exception) -> Refusal:
    return Refusal(f"{folder} holds no finished run ({error}): measure one with `specdec bench`")
