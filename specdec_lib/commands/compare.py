"""`specdec compare`: several finished runs in one table, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from specdec_lib.analysis.report_text import interval_text
from specdec_lib.analysis.run_comparison import MethodInRun, RunComparison, compare_runs, csv_rows, load_runs, run_facts
from specdec_lib.bench.run_folder import refuse_own_file
from specdec_lib.files import check_file_place, write_text

WIDTH = 150                                        # of a table that no terminal bounds


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
    wide = console or Console(soft_wrap=False)
    if not wide.is_terminal:
        wide = Console(file=wide.file, width=WIDTH)
    wide.print(runs_table(found))
    wide.print(methods_table(found))
    for sentence in found.sentences:
        wide.print(sentence, markup=False, highlight=False)


def runs_table(found: RunComparison) -> Table:
    """One line for each run."""
    facts = [run_facts(run) for run in found.runs]
    table = Table(*(name.replace("_", " ") for name in facts[0]))
    for one in facts:
        table.add_row(*map(escape, one.values()))
    return table


def methods_table(found: RunComparison) -> Table:
    """Each method with a line for each run that has it; times that were not measured stand in a column of their own."""
    other = not all(row.measured for row in found.rows)
    table = Table("method", "run", "tokens per forward", "tokens/s", "times plain decoding (95 %)",
                  f"times {escape(found.runs[0].name)} (95 %)", "time",
                  *(["simulated: times plain decoding"] if other else []))
    for method in dict.fromkeys(row.method for row in found.rows):
        group = [row for row in (*found.rows, *found.averaged) if row.method == method]
        for place, row in enumerate(group):
            table.add_row(*map(escape, cells(row, other)), end_section=place + 1 == len(group))
    return table


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
