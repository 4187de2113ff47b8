"""On what a finished run was measured, in few words: how many prompts, which chip, and whether the machine was busy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specdec_lib.analysis.bench_report import Report

QUIET = re.compile(r"\((R|TM)\)|\b(Processor|CPU)\b|@.*", re.IGNORECASE)       # what all names of processors share


def measured_on(report: Report) -> str:
    """`Measured on 24 prompts (AMD EPYC, busy)`."""
    return f"Measured on {run_place(report)}"


def run_place(report: Report, target: bool = False, cores: bool = False) -> str:
    """`24 prompts (AMD EPYC, busy)`, as much of it as the run says; a toy target is always named, another if asked."""
    about, name, count = report.summary, report.summary["target"]["name"], report.summary["prompts"]["count"]
    threads = (about.get("machine") or {}).get("cores") if cores else None
    told = [name if target or name == "toy" else "", f"{threads} cores" if threads else "", chip(about),
            "busy" if is_busy(report) else ""]
    where = ", ".join(filter(None, told))
    return f"{count} prompt{'s' * (count != 1)}{f' ({where})' if where else ''}"


def place_sentence(report: Report) -> str:
    """On how many prompts, which target and which chip a run was measured, and what it means where that was busy."""
    doubt = "; on a busy machine intervals are too narrow" if is_busy(report) else ""
    return f"Measured on {run_place(report, target=True)}{doubt}."


def chip(summary: Mapping[str, Any]) -> str:
    """The GPU of a run, or its processor: `Intel Xeon` of `Intel(R) Xeon(R) Processor`; empty if it is unknown."""
    machine = summary.get("machine") or {}
    on_gpu = machine.get("gpu") and (summary.get("target") or {}).get("device") != "cpu"
    return machine["gpu"] if on_gpu else " ".join(QUIET.sub(" ", machine.get("processor") or "").split())


def is_busy(report: Report) -> bool:
    """Whether the run warns that its machine was busy: then its intervals are too narrow."""
    return any("busy" in warning for warning in report.warnings)


def sure_word(report: Report) -> str:
    """What stands before a verdict on speed: nothing where the machine was busy."""
    return "" if is_busy(report) else "surely "
