"""What `bench` and `report` print once a run is finished: its fastest methods, a line each."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from specdec_lib.analysis.bench_report import load_report
from specdec_lib.analysis.speed_table import left_out, speed_rows
from specdec_lib.commands.text_table import print_table
from specdec_lib.types import Refusal


def show_speeds(run: Path, quiet: bool = False, console: Console | None = None) -> None:
    """Prints the table of a finished run, as plain text if `quiet`. Refusal where its summary lacks what a run has."""
    report = load_report(run)
    try:
        rows, more = speed_rows(report), left_out(report)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise Refusal(f"{run / 'summary.json'} is not the summary of a run ({type(error).__name__}): copy the run again"
                      ", or measure it again in another folder") from None
    out = console or Console()
    print_table(rows, out, plain=quiet)
    if more:
        out.print(more, highlight=False, markup=False)
