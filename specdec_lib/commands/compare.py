"""`specdec compare`: several finished runs in one table, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from specdec_lib.analysis.report_text import interval_text
from specdec_lib.analysis.run_comparison import MethodInRun, RunComparison, compare_runs, csv_rows, load_runs, run_facts
from specdec_lib.bench.run_folder import refuse_own_file
from specdec_lib.commands.text_table import print_table
from specdec_lib.files import check_file_place, write_text

NARROW = 100                                       # columns of a terminal that has no room for all numbers


def compare_folders(folders: Sequence[Path], out: Path | None = None) -> RunComparison:
    """The comparison of these runs, written as CSV to `out` if given."""
    if out is not None:
        check_file_place(out)
        refuse_own_file(out, folders)
    found = compare_runs(load_runs(folders))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, as_csv(found))
    return found


def as_csv(found: RunComparison) -> str:
    """The rows as CSV; an unknown value is empty."""
    rows, text = list(csv_rows(found)), io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def show_comparison(found: RunComparison, console: Console | None = None) -> None:
    """Prints the runs, then each method in each, then a sentence for what is not compared."""
    console = console or Console()
    print_table(fact_rows(found), console, left=[run.name for run in found.runs])
    kinds, narrow = {row.time for row in found.rows}, console.is_terminal and console.width < NARROW
    hidden = ["time"] * (len(kinds) == 1) + ["tokens/s"] * narrow
    print_table([{name: cell for name, cell in row.items() if name not in hidden} for row in method_rows(found)],
                console, left=["run"])
    for sentence in [*(f"All times: {kind}." for kind in kinds if len(kinds) == 1), *found.sentences]:
        console.print(sentence, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def fact_rows(found: RunComparison) -> list[dict[str, str]]:
    """One row for each fact and a column for each run, since a terminal is seldom wide enough for all facts."""
    facts = {run.name: run_facts(run) for run in found.runs}
    names = [name for name in next(iter(facts.values())) if name != "run"]
    return [{"": name.replace("_", " "), **{run: told[name] for run, told in facts.items()}} for name in names]


def method_rows(found: RunComparison) -> list[dict[str, str]]:
    """Each method with a row for each run that has it; times that were not measured stand in a column of their own."""
    other = not all(row.measured for row in found.rows)
    names = ("method", "run", "tokens per forward", "tokens/s", "times plain decoding (95 %)",
             f"times {found.runs[0].name} (95 %)", "time", *(["simulated: times plain decoding"] if other else []))
    rows = (*found.rows, *found.averaged)
    return [dict(zip(names, cells(row, other), strict=True))
            for method in dict.fromkeys(row.method for row in found.rows) for row in rows if row.method == method]


def cells(row: MethodInRun, other: bool) -> list[str]:
    speed = times(row.speedup, row.interval)
    rate = "" if row.tokens_per_second is None else f"{row.tokens_per_second:.1f}"
    shown = [rate, speed] if row.measured else ["", ""]
    return [row.method, row.run, "" if row.tokens_per_forward is None else f"{row.tokens_per_forward:.2f}", *shown,
            times(row.against_first, row.against_interval), row.time,
            *([speed if not row.measured else ""] if other else [])]


def times(ratio: float | None, interval: Sequence[float] | None) -> str:
    """`1.63 (1.39 to 1.92)`."""
    if ratio is None:
        return ""
    return f"{ratio:.2f}" + (f" ({interval_text(interval)})" if interval else "")
