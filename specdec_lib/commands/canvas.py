"""The command `specdec canvas`: ways to fill a canvas, run and kept. Imports nothing heavy before its words are read.

A command of its own and no family of `specdec bench`: a bench measures text that grows from a prompt, in tokens per
second against plain decoding, with prompts, end tokens and drafters as its options. A canvas has tasks with an answer,
its measures are solved tasks at equal forwards and canvases identical to stepwise decoding, and none of the bench's
options but the seed means anything here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.commands import arguments as opt
from specdec_lib.commands.exit_codes import Stopped, say

DEFAULT = "stepwise,parallel(k=4),threshold(theta=0.9),factor(f=1.0),ssd(rows=4)"


def known_canvas_methods(specs: str) -> str:
    """These comma-separated specs, unchanged; Refusal for the first that names no canvas method."""
    from specdec_lib.canvas.catalog import canvas_specs

    canvas_specs(specs)
    return specs


# The names are written here, because the cards load torch and help is fast; a test holds them against the cards.
Rules = Annotated[str, typer.Option("--methods", callback=known_canvas_methods,
                                    help="Names with parameters, separated by commas: stepwise, parallel, threshold, "
                                    "factor, cached-blocks, ssd, tolerator, remask, vote.")]
World = Annotated[str, typer.Option("--world", help="sudoku, text or table.")]


def canvas(out: Annotated[Path, opt.path_option("--out", "The folder of the results.")] = Path("results/canvas"),
           world: World = "sudoku", rules: Rules = DEFAULT,
           limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Tasks.")] = 24, seed: opt.Seed = 0,
           keep: Annotated[int, typer.Option("--keep", min=0, help="Tasks whose rounds are kept for drawing.")] = 8,
           checkpoints: opt.Shelf = None, threads: opt.Threads = None) -> None:
    """Fills the canvases of a world in several ways; writes decodes.parquet, rounds.parquet and summary.json."""
    from specdec_lib.bench.canvas_run import CanvasPlan, run_canvases
    from specdec_lib.bench.canvas_summary import summary_table
    from specdec_lib.bench.plan import check_threads
    from specdec_lib.bench.progress import bar
    from specdec_lib.canvas.catalog import canvas_specs
    from specdec_lib.canvas.worlds import open_world
    from specdec_lib.models.threads import for_model

    check_threads(threads)
    for_model(threads)                             # what is measured here has all threads, or those asked for
    there = open_world(world, limit, seed, checkpoints)
    try:
        with bar("canvas") as progress:
            told = run_canvases(CanvasPlan.of(canvas_specs(rules), seed, keep), there, out, progress)
    except KeyboardInterrupt:
        raise Stopped(f"stopped: finished tasks are kept in {out}, the same command continues from there") from None
    typer.echo(summary_table(told))
    say(f"results in {out}")
