"""Tokens of a target forward against the speed ratio, the ceiling of drafting in parallel that Double wants to lift.

A drafter beside the target makes as many tokens as it has time for, so PEARL emits no more per forward than the ratio
of both times. Double (arXiv 2601.05524) gets several tokens out of a draft forward by retrieval, on text that repeats.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from specdec_lib.analysis.bench_report import Report, load_report
from specdec_lib.analysis.parallel_runs import calibrate, rounds_of
from specdec_lib.analysis.wording import than
from specdec_lib.bench.results import select
from specdec_lib.measure import Row
from specdec_lib.types import Refusal

BASE, METHOD = "pearl", "double"
COMMAND = ('specdec bench --prompts data/prompts/repeating.jsonl --max-new-tokens 128'
           ' --out data/results/parallel-repeating --methods "ar,sam,pearl,double,double(inner=False),'
           'double(guide=False)"')


def speed_ratio(report: Report) -> float:
    """Draft steps in one forward of the target beside them: medians over PEARL's rounds, measured."""
    decodes = rounds_of(report, BASE)
    step = calibrate(decodes).step if decodes else 0.0
    if not step:
        raise Refusal(f"the run has no drafted rounds of {BASE}, whose forwards give one token each: {COMMAND}")
    return median(row.target for rows in decodes for row in rows) / step


def ceiling_rows(report: Report) -> dict[str, dict]:
    """For each method that drafts ahead: tokens per forward over the speed ratio, and the prompts that lie above it."""
    ratio, out = speed_ratio(report), {}
    for spec in report.methods:
        rows: dict[int | str, list[Row]] = {}      # by prompt, all its turns together
        for one in select(report.decodes, method=spec):
            rows.setdefault(one.question_id, []).extend(one.outcome.rows)
        if not any(row.ahead is not None for some in rows.values() for row in some):
            continue
        each = [sum(row.emitted for row in some) / len(some) for some in rows.values() if some]
        whole = report.entries[spec]["tokens_per_target_forward"]
        out[spec] = {"tokens per forward": whole, "speed ratio": ratio, "tokens per forward / ratio": whole / ratio,
                     "best prompt": max(each), "prompts above the ratio": sum(one > ratio for one in each),
                     "prompts": len(each)}
    return out


def ceiling_sentence(run: str) -> str:
    """Whether Double emits more tokens per forward than the speed ratio in this run, or what measures it."""
    if not (Path(run) / "summary.json").is_file():
        return f"Not measured here: `{COMMAND}` does it."
    rows = ceiling_rows(load_report(run))
    if METHOD not in rows:
        return f"The run in {run} has no {METHOD}: `{COMMAND}` measures it."
    one = rows[METHOD]
    side = "above" if one["tokens per forward"] > one["speed ratio"] else "not above"
    return (f"{METHOD} emits {one['tokens per forward']:.2f} tokens per forward, {side} the speed ratio of"
            f" {one['speed ratio']:.1f} (a forward over a draft step, medians of {BASE}'s rounds in this run); on its"
            f" best prompt {one['best prompt']:.2f}, and above the ratio on"
            f" {one['prompts above the ratio']} of {one['prompts']} prompts.")


def lifted_sentence(run: str) -> str:
    """Whether Double emits more tokens per forward than a drafter makes in that time, in short; empty if not measured.
    """
    if not (Path(run) / "summary.json").is_file():
        return ""
    report = load_report(run)
    if not {BASE, METHOD} <= set(report.entries):
        return ""
    one = ceiling_rows(report)[METHOD]
    said = than(METHOD, one["tokens per forward"], "the ceiling, the draft steps beside it", one["speed ratio"],
                "more tokens per target forward", "fewer tokens per target forward", digits=1, verb="emits")
    return f"With retrieval {said}."
