"""The commands on finished runs: `export` and `compare`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.commands import arguments as opt
from specdec_lib.commands.exit_codes import say


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    for command in (export, compare):
        app.command()(command)


def export(run: Annotated[Path, typer.Argument(help="The folder of a finished run.", parser=opt.some_path,
                                               metavar="RUN")],
           out: Annotated[Path, opt.path_option("--out", "A file with --method, else a folder for a file each.")],
           kind: Annotated[str, typer.Option("--format", help="spec-bench: answer files of Spec-Bench.")]
           = "spec-bench",
           method: Annotated[str, typer.Option("--method", help="One method of the run; default: all.")] = "",
           prompts: Annotated[Path | None, opt.path_option("--prompts", "The run's prompts; needed for categories if "
                                                           "they are not the shipped ones.")] = None) -> None:
    """Writes the answers of a finished run in another project's format."""
    from specdec_lib.commands.export import export_run

    for path in export_run(run, out, kind, method, prompts, say):
        typer.echo(str(path))


def compare(runs: Annotated[list[Path], typer.Argument(help="The folders of finished runs, the first one to compare "
                                                       "with.", parser=opt.some_path, metavar="DIR...")],
            out: Annotated[Path | None, opt.path_option("--out", "CSV file of the comparison.")] = None) -> None:
    """Shows several runs side by side, paired where their prompts agree; says what must not be averaged."""
    from specdec_lib.commands.compare import compare_folders, show_comparison

    show_comparison(compare_folders(runs, out))
