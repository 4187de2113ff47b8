"""SpecBranch's parts: H-RAD on held-out drafts, from its card, and what a run discards beside PEARL at equal length.

The rollback rate is `measure.discarded_share`. Differences between methods are paired by prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from specdec_lib.analysis.bench_report import Report, load_report, plain_part
from specdec_lib.analysis.compare import method_rounds
from specdec_lib.analysis.wording import verdict
from specdec_lib.bench.results import select
from specdec_lib.heads.hrad import CLASSES, NAME
from specdec_lib.measure import change, change_interval, discarded_share, tokens_per_target_forward

RUN = "data/results/parallel-ablations"
METHODS = ("ar,pearl(depth=4),pearl(depth=4,workers='inline'),specbranch(depth=4),specbranch(depth=4,most=1),"
           "specbranch(depth=4,epsilon=0),specbranch(depth=4,predict='length'),specbranch(depth=4,predict='h-rad'),"
           "ppsd(layer=5),ppsd(layer=10)")
COMMAND = f'specdec bench --limit 12 --max-new-tokens 48 --repeats 2 --out {RUN} --methods "{METHODS}"'


def confusion(figures: Mapping) -> dict[str, dict[str, int]]:
    """Held-out drafts of a card's figures: a row for each true class, a column for each predicted one."""
    return {f"{true} accepted": {f"predicted {said}": count for said, count in zip(CLASSES, row, strict=True)}
            for true, row in figures["predicted as none, some, all"].items()}


def accuracy_rows(card: Mapping) -> dict[str, dict]:
    """Accuracy of each predictor on the card's held-out drafts, and the pairs in which H-RAD or it alone is right."""
    held = card["measured"]["held-out"]
    return {name: {"accuracy": one["accuracy"], "h-rad alone is right": one.get("it alone is right"),
                   "it alone is right": one.get("the other alone is right")} for name, one in held.items()}


def accuracy_sentence(card: Mapping, other: str = "majority") -> str:
    """Whether H-RAD is right more often than another predictor on the same drafts: two standard errors of the pairs."""
    held = card["measured"]["held-out"]
    if other not in held:
        return f"The card compares {NAME} with no {other}."
    mine, wins, losses = held[NAME], held[other]["it alone is right"], held[other]["the other alone is right"]
    error = 2 * (wins + losses) ** .5
    said = verdict((wins - losses - error, wins - losses + error), "surely more often than", "surely less often than",
                   "not surely more or less often than", line=0.0)
    return (f"On {mine['positions']:,} held-out drafts {NAME} is right in {mine['accuracy']:.1%}, {said} the {other}"
            f" ({held[other]['accuracy']:.1%}): it alone is right {wins} times, the other {losses} times.")


def at_equal_length(report: Report) -> dict[str, str]:
    """Each run of SpecBranch -> the PEARL with the same `depth` and the same workers, where there is one.

    Without a depth both follow the measured speed ratio, each its own.
    """
    parts = {spec: part for spec in report.methods if (part := plain_part(spec))}
    setting = {spec: (part.values.get("depth"), part.values.get("workers")) for spec, part in parts.items()}
    pearls = {setting[spec]: spec for spec, part in parts.items()
              if part.name == "pearl" and set(part.values) <= {"depth", "workers"}}
    return {spec: pearls[setting[spec]] for spec, part in parts.items()
            if part.name == "specbranch" and setting[spec][0] is not None and setting[spec] in pearls}


def discarded_pairs(report: Report, spec: str) -> list[tuple[float, float]]:
    """By prompt, all its turns together: drafted tokens that were discarded, and those and the kept ones together."""
    found: dict[str, tuple[float, float]] = {}
    for one in sorted(select(report.decodes, method=spec), key=lambda one: str(one.question_id)):
        lost = sum(row.discarded or 0 for row in one.outcome.rows)
        kept = sum(row.accepted if row.kept is None else row.kept for row in one.outcome.rows)
        before = found.get(str(one.question_id), (0, 0))
        found[str(one.question_id)] = before[0] + lost, before[1] + lost + kept
    return list(found.values())


def ablation_rows(report: Report) -> dict[str, dict]:
    """For each run of SpecBranch beside its PEARL: what is discarded, and the paired difference."""
    out = {}
    for spec, pearl in at_equal_length(report).items():
        base, own = discarded_pairs(report, pearl), discarded_pairs(report, spec)
        rows = method_rounds(report, spec)
        low, high = change_interval(base, own) or (None, None)
        out[spec] = {"discarded share": discarded_share(rows),
                     "that of its PEARL": discarded_share(method_rounds(report, pearl)),
                     "less that of its PEARL": change(base, own),
                     "95 % from": low, "to": high, "tokens per forward": tokens_per_target_forward(rows)}
    return out


def ablation_sentences(run: str) -> list[str]:
    """Whether each part of SpecBranch discards less than PEARL at equal length in this run, or what measures it."""
    if not (Path(run) / "summary.json").is_file():
        return [f"No ablation was measured here: `{COMMAND}` does it."]
    report = load_report(run)
    rows, out = ablation_rows(report), report.warnings
    for spec, row in rows.items():
        span = None if row["95 % from"] is None else (row["95 % from"], row["to"])
        said = verdict(span, "surely more than", "surely less than", "not surely more or less than", line=0.0)
        out.append(f"{spec} discards {said} PEARL at the same length: {row['discarded share']:.1%} against"
                   f" {row['that of its PEARL']:.1%}, a difference of"
                   f" {points(row['less that of its PEARL'], span)}.")
    if not any(part.values.get("predict") == NAME for spec in rows if (part := plain_part(spec))):
        out.append(f"This run has no predict='{NAME}': `{COMMAND}` measures it.")
    return out + predictor_sentences(report)


def points(by: float, span: Sequence[float] | None) -> str:
    """A difference of shares in points, with its interval."""
    return f"{100 * by:+.1f} points" + (f" ({100 * span[0]:+.1f} to {100 * span[1]:+.1f})" if span else "")


def predictor_sentences(report: Report) -> list[str]:
    """Whether less is discarded where H-RAD classifies the draft than by SpecBranch's other cuts, paired by prompt."""
    parts = {spec: part for spec in at_equal_length(report) if (part := plain_part(spec))}
    mine, out = [spec for spec, part in parts.items() if part.values.get("predict") == NAME], []
    for spec in mine:
        rest = {key: value for key, value in parts[spec].values.items() if key != "predict"}
        for other in [one for one in parts if one not in mine and
                      rest == {key: value for key, value in parts[one].values.items() if key != "predict"}]:
            pair = discarded_pairs(report, other), discarded_pairs(report, spec)
            span = change_interval(*pair)
            said = verdict(span, "surely more than", "surely less than", "not surely more or less than", line=0.0)
            out.append(f"{spec} discards {said} {other}: {points(change(*pair) or 0.0, span)}.")
    return out
