"""The command `specdec sweep`: a grid of methods and parameters, run cell by cell on Ray. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.commands import arguments as opt
from specdec_lib.commands.exit_codes import FAILED, Stopped, say
from specdec_lib.types import Refusal

SHOWN = 5                                          # failed cells that are named on the terminal


def show_best(folder: Path) -> None:
    """Prints the best settings of a finished sweep, what is known of the best one, and where all are."""
    from rich.console import Console

    from specdec_lib.analysis.sweep import load_sweep
    from specdec_lib.analysis.sweep_noise import clock_factor
    from specdec_lib.analysis.sweep_text import best_rows, best_sentences
    from specdec_lib.commands.text_table import print_table

    try:
        run = load_sweep(folder)
    except Refusal as why:                         # settings on other prompts are kept, and do not compare
        say(str(why))
        return
    rows = best_rows(run, run.first_measure)
    if rows:
        print_table(rows, Console())
    typer.echo(best_sentences(run, run.first_measure, clock_factor(run, run.first_measure)))
    typer.echo(f"all of it: `specdec notebook 91 -p sweep={folder}`")


def sweep(grid: Annotated[Path, typer.Argument(help="The YAML file of the grid.", parser=opt.some_path,
                                               metavar="GRID.yaml")],
          out: Annotated[Path, opt.path_option("--out", "The folder of the results.")] = Path("results/sweep"),
          address: Annotated[str | None, typer.Option("--address", help="An existing Ray cluster: auto, HOST:PORT or "
                                                      "ray://HOST:PORT; default: one on this machine, as long as the "
                                                      "sweep lasts.")] = None) -> None:
    """Runs a grid of methods, parameters, prompts, seeds and targets; writes cells.parquet and summary.json."""
    from specdec_lib.bench.progress import bar
    from specdec_lib.sweep.run import run_sweep

    try:
        with bar("sweep") as progress:
            summary, ran = run_sweep(grid, out, address, progress)
    except KeyboardInterrupt:
        raise Stopped(f"stopped: finished cells are kept in {out}, the same command continues from there") from None
    for warning in summary["settings"]["warnings"]:
        say(warning)
    failed = summary["sweep"]["failed"]
    for one in failed[:SHOWN]:
        say(f"failed: {one['spec']}: {one['why']}")
    typer.echo(f"{len(summary['sweep']['cells'])} cells in {out}, {ran} of them run now")
    show_best(out)
    if failed:
        say(f"{len(failed)} cells failed; the same command runs them again")
        raise typer.Exit(FAILED)
