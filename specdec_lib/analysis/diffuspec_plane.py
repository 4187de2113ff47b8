"""Methods as points in one plane, cost of a draft against tokens of a round: measured in a run, and published.

A cost is in plain steps of the target: milliseconds of drafting and searching over those of a plain round. A method
breaks even where its tokens exceed its verification and its draft together.
"""

from __future__ import annotations

from collections.abc import Mapping

from specdec_lib.analysis import diffuspec_ablation
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.diffuspec_published import (
    ABLATION,
    BOTH,
    DIFFUSPEC_ROUND,
    FIXED,
    INDEPENDENT,
    PER_TASK,
    SPS,
    SPS_ROUND,
    STEP,
    TASKS,
)

Point = tuple[float, float]                        # cost of a draft in plain steps, tokens of a round


def plain_ms(report: Report) -> float:
    """Milliseconds of a round of plain decoding."""
    return sum(diffuspec_ablation.round_ms(report, "ar").values())


def measured_points(report: Report) -> dict[str, Point]:
    """The four cells and their rivals, as far as the run holds them."""
    held = [*diffuspec_ablation.specs_by_cell(report.entries).values(), *diffuspec_ablation.RIVALS]
    out = {}
    for spec in (spec for spec in held if spec in report.entries):
        parts = diffuspec_ablation.round_ms(report, spec)
        out[diffuspec_ablation.method_label(spec)] = ((parts["draft"] + parts["search"]) / plain_ms(report),
                                                      report.entries[spec]["tokens_per_target_forward"])
    return out


def verification(report: Report) -> float:
    """Plain steps of a mean round besides its draft, with both parts of DiffuSpec."""
    parts = diffuspec_ablation.round_ms(report, diffuspec_ablation.specs_by_cell(report.entries)[BOTH])
    return (parts["target"] + parts["overhead"]) / plain_ms(report)


def published_points() -> dict[str, Point]:
    """The paper's two methods by its Figure 6 and its Tables 1 and 2."""
    return {"DiffuSpec, published": ((DIFFUSPEC_ROUND.draft + DIFFUSPEC_ROUND.search) / STEP, ABLATION[BOTH].tokens),
            "7B token by token, published": (SPS_ROUND.draft / STEP, SPS.tokens)}


def ranges(*points: Mapping[str, Point]) -> tuple[Point, Point]:
    """Ranges of both axes that hold all points; costs from a hundredth of a plain step, tokens from 0.9."""
    found = [point for some in points for point in some.values()]
    return (0.01, 1.3 * max(cost for cost, _ in found)), (0.9, 1.2 * max(count for _, count in found))


def published_maths() -> dict[str, dict]:
    """Mathematics in the paper (Table 4) and in an independent run of ten questions."""
    rows = {"the paper, mathematics": PER_TASK[BOTH][TASKS.index("math_reasoning")], **INDEPENDENT}
    return {name: one._asdict() for name, one in rows.items()}


def published_lengths() -> dict[str, dict]:
    """With the search, over all tasks: the paper's fixed lengths (Table 5) and its controller (Table 2)."""
    rows = {**{f"{length} tokens": one for length, one in FIXED.items()}, "controller, 20 to 30": ABLATION[BOTH]}
    return {name: one._asdict() for name, one in rows.items()}
