"""The commands on finished runs, `export`, `compare` and `repeat`, and on this machine, `doctor`.

Imports nothing heavy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.commands import arguments as opt
from specdec_lib.commands.exit_codes import say


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    for command in (export, compare, repeat, doctor):
        app.command()(command)


def export(run: Annotated[Path, typer.Argument(help="The folder of a finished run, or eagle, the trained head.",
                                               parser=opt.some_path, metavar="RUN")],
           out: Annotated[Path, opt.path_option("--out", "A file with --method, else a folder for a file each.")],
           kind: Annotated[str, typer.Option("--format", help="spec-bench: answer files of Spec-Bench; for eagle: "
                                             "speculators or eagle3.")] = "spec-bench",
           method: Annotated[str, typer.Option("--method", help="One method of the run; default: all.")] = "",
           prompts: Annotated[Path | None, opt.path_option("--prompts", "The run's prompts; needed for categories if "
                                                           "they are not the shipped ones.")] = None,
           target: Annotated[str | None, typer.Option("--target", help="The target of a head; default: smollm2-135m.")]
           = None, checkpoints: opt.Shelf = None) -> None:
    """Writes the answers of a finished run, or a trained EAGLE head for a target, in another project's format."""
    from specdec_lib.commands.export import FORMATS, HEADS, export_run
    from specdec_lib.types import Refusal

    if kind in HEADS:
        from specdec_lib.checkpoints.card import shelf_at
        from specdec_lib.commands.export_head import export_head

        if method or prompts is not None:
            raise Refusal("--method and --prompts are for the answers of a run: leave them out for a head")
        paths = export_head(str(run), out, kind, target or "smollm2-135m", shelf_at(checkpoints), say)
    else:
        if kind in FORMATS and (target is not None or checkpoints is not None):
            raise Refusal("--target and --checkpoints are for a head: give --format speculators with them, or leave"
                          " them out for the answers of a run")
        paths = export_run(run, out, kind, method, prompts, say)
    for path in paths:
        typer.echo(str(path))


def compare(runs: Annotated[list[Path], typer.Argument(help="The folders of finished runs, the first one to compare "
                                                       "with.", parser=opt.some_path, metavar="DIR...")],
            out: Annotated[Path | None, opt.path_option("--out", "CSV file of the comparison.")] = None) -> None:
    """Shows several runs side by side, paired where their prompts agree; says what must not be averaged."""
    from specdec_lib.commands.compare import compare_folders, show_comparison

    show_comparison(compare_folders(runs, out))


def repeat(run: Annotated[Path, typer.Argument(help="The folder of a finished run, such as data/results/respec.",
                                               parser=opt.some_path, metavar="RUN")],
           out: Annotated[Path | None, opt.path_option("--out", "The folder of the new run; default: "
                                                       "results/repeat/NAME.")] = None,
           limit: opt.Limit = None, prompts: opt.Prompts = None,
           target: Annotated[str | None, typer.Option("--target", help="Where the target is now; default: its name in "
                                                      "the run.")] = None,
           threads: opt.Threads = None, store: opt.Store = None, draft: opt.Draft = None,
           diffusion: opt.Diffusion = None, eagle: opt.Eagle = None, dflash: opt.DFlash = None,
           checkpoints: opt.Shelf = None, quiet: opt.Quiet = False) -> None:
    """Measures a finished run again from its own settings, and says which speed-ups and answers come out again."""
    options = locals()
    from specdec_lib.commands.measured_run import measured
    from specdec_lib.commands.repeat import repeat_options, show_repetition

    place = out or Path("results") / "repeat" / run.resolve().name
    given = {name: value for name, value in options.items() if name not in ("run", "out", "quiet")}
    measured(place, {**repeat_options(run, place, given), "quiet": quiet})
    typer.echo("")
    show_repetition(run, place, quiet)
    typer.echo(f"results in {place}")


def doctor(target: opt.Target = "smollm2-135m", threads: opt.Threads = None, checkpoints: opt.Shelf = None,
           seconds: Annotated[float, typer.Option("--seconds", help="How long the memory bandwidth is measured; 0: not "
                                                  "at all.")] = 2.0,
           as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Says what this machine is, what is installed and how fast plain decoding can be; fetches nothing."""
    from specdec_lib.bench.diagnosis import diagnosis
    from specdec_lib.checkpoints.card import shelf_at
    from specdec_lib.commands.doctor import told

    found = diagnosis(target, shelf_at(checkpoints), threads, seconds)
    typer.echo(json.dumps(found, indent=1, ensure_ascii=False) if as_json else "\n".join(told(found)))
