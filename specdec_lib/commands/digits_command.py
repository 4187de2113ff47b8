"""The command `specdec digits`: images by the target alone and by speculation. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.commands import arguments as opt
from specdec_lib.commands.exit_codes import Stopped
from specdec_lib.types import Refusal


def digits(out: Annotated[Path, opt.path_option("--out", "The folder of the results.")] = Path("results/digits"),
           methods: Annotated[str | None, typer.Option(
               "--methods", help="mixture or diffusion, also -plain and -published; parameters in brackets.")] = None,
           images: Annotated[int, typer.Option("--images", help="Images by each method; a multiple of 20.")] = 200,
           batch: Annotated[int, typer.Option("--batch", help="Images at a time.")] = 64,
           keep: Annotated[int, typer.Option("--keep", help="Images whose pixels are kept.")] = 60,
           checkpoints: opt.Shelf = None, threads: opt.Threads = None, seed: opt.Seed = 0) -> None:
    """Speculative decoding of images: counts, times and compares methods on 8 x 8 digits."""
    from specdec_lib.analysis.digits import digits_table
    from specdec_lib.bench.digits_run import DEFAULT, DigitOptions, run_digits
    from specdec_lib.bench.progress import bar
    from specdec_lib.checkpoints.card import shelf_at

    asked = DigitOptions(DEFAULT if methods is None else methods, images, batch, keep, seed, threads)
    try:
        with bar("digits") as progress:
            summary = run_digits(asked, out, shelf_at(checkpoints), progress)
    except KeyboardInterrupt:
        raise Stopped(f"stopped: finished methods are kept in {out}, the same command continues from there") from None
    try:
        told = digits_table(summary)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Refusal(f"{out} holds a damaged run: remove it, or give another --out") from None
    typer.echo(told)
    typer.echo(f"results in {out}")
