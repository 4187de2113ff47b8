"""Two methods of one run compared, and the share of each source of drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from specdec_lib.analysis.bench_report import Report, load_report, with_families
from specdec_lib.analysis.report_text import interval_text, times_text
from specdec_lib.analysis.wording import verdict
from specdec_lib.bench.options import RunOptions, bench_prepared, prepare
from specdec_lib.bench.progress import bar
from specdec_lib.bench.results import select
from specdec_lib.measure import Row

SAID = {"faster": ("gains", "gain"), "slower": ("costs speed", "cost speed"),            # of one part and of several
        "not told apart": ("is not told apart", "are not told apart")}


class Comparison(NamedTuple):
    """How many times as fast `other` is as `base`, with the interval of their own ratio."""

    other: str
    base: str
    ratio: float | None
    interval: Sequence[float] | None

    @property
    def verdict(self) -> str:
        """The conclusion that the interval supports."""
        return verdict(self.interval)


class SourceShare(NamedTuple):
    """One source of drafts: its shares of rounds and of decode time, and means over its rounds."""

    share: float
    drafted: float                                 # nodes
    accepted: float
    tokens: float                                  # emitted
    ms: float                                      # of the whole round
    time: float                                    # share of the method's decode time

    @property
    def rate(self) -> float:
        """Tokens per millisecond."""
        return self.tokens / self.ms


def read_or_measure(run: str, out: str = "", **options) -> Report:
    """The finished run in the folder `run`; if `run` is "", the bench of these options, run or resumed in `out`."""
    if run:
        return with_families(load_report(run))
    here = prepare(RunOptions(**options))
    with bar("bench") as progress:
        bench_prepared(here, Path(out), progress, lambda line: None)
    return load_report(out)


def faster_of(report: Report, specs: Sequence[str], family: str | None = None) -> str:
    """The fastest of these methods, on one family or on all prompts; a tie goes to the earlier one."""
    at = [report.entries[spec] if family is None else report.entries[spec]["by_family"][family] for spec in specs]
    return specs[max(range(len(specs)), key=lambda place: at[place]["speedup"] or 0.0)]


def parts_sentence(system: str, parts: Mapping[str, Comparison], base: str, every: int) -> str:
    """Which of the parts of a system gain speed over `base` and which cost it; `every` is how many the system has."""
    if not parts:
        return f"This run cannot say whether a part of {system} pays: it holds none beside {base}."
    groups: dict[str, list[str]] = {}
    for name, one in parts.items():
        groups.setdefault(one.verdict, []).append(f"{name}, {times_text(one.ratio, one.interval)},")
    told = [f"{' and '.join(names)} {singular if len(names) == 1 else plural}"
            for word, (singular, plural) in SAID.items() for names in [groups.pop(word, [])] if names]
    told += [f"{' and '.join(names)} {word}" for word, names in groups.items()]
    verdicts = {one.verdict for one in parts.values()}
    which = "Every" if verdicts == {"faster"} else "Not every" if "faster" in verdicts else "No"
    pays = "pays" if verdicts <= {"faster", "slower"} else "is shown to pay"
    return (f"{which} part of {system}{' that this run holds' * (len(parts) < every)} {pays} compared with {base}:"
            f" {'; '.join(told)}.")


def comparison_table(found: dict[str, Comparison]) -> dict[str, dict]:
    """Comparisons as a table."""
    return {name: {"against": one.base, "times as fast": one.ratio, "95 % interval": interval_text(one.interval),
                   "so it is": one.verdict} for name, one in found.items()}


def method_rounds(report: Report, spec: str, family: str | None = None) -> list[Row]:
    """All rounds of a method, on one family or on all prompts."""
    return [row for one in select(report.of_family(family), method=spec) for row in one.outcome.rows]


def ms_per_token(report: Report, spec: str) -> dict[str, float]:
    """Milliseconds per emitted token in each part of a round: when, what, target, how."""
    own = method_rounds(report, spec)
    emitted = sum(row.emitted for row in own)
    return {part: 1000 * sum(getattr(row, part) for row in own) / emitted for part in ("when", "what", "target", "how")}


def source_shares(report: Report, spec: str) -> dict[str, SourceShare]:
    """Source of drafts -> its share, the most frequent first; "nobody" are rounds without a draft."""
    own, groups = method_rounds(report, spec), {}
    for row in own:
        groups.setdefault(row.source or "nobody", []).append(row)
    whole = sum(row.seconds for row in own)
    return {name: SourceShare(len(some) / len(own), sum(row.drafted for row in some) / len(some),
                              sum(row.accepted for row in some) / len(some),
                              sum(row.emitted for row in some) / len(some),
                              1000 * sum(row.seconds for row in some) / len(some),
                              sum(row.seconds for row in some) / whole)
            for name, some in sorted(groups.items(), key=lambda pair: -len(pair[1]))}


def mean_round(report: Report, spec: str, family: str | None = None) -> tuple[float, float]:
    """Tokens and milliseconds of a method's mean round, on one family or on all prompts."""
    own = method_rounds(report, spec, family)
    return sum(row.emitted for row in own) / len(own), 1000 * sum(row.seconds for row in own) / len(own)
