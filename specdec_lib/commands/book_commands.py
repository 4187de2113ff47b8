"""The commands that open, execute and publish notebooks: `notebook`, `lab` and `site`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.commands import arguments as opt
from specdec_lib.commands.exit_codes import Stopped, say
from specdec_lib.types import Refusal

OUT = Path("results")


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    for command in (notebook, lab, site):
        app.command()(command)


def notebook(name: Annotated[str, typer.Argument(help="A number or name, such as 40 or respec; none: list them.")] = "",
             recordings: Annotated[Path | None, opt.path_option("--recordings", "A folder that `specdec record` made; "
                                                                "default: the shipped ones.")] = None,
             values: Annotated[list[str] | None, typer.Option("-p", metavar="NAME=VALUE", help="A parameter of the "
                                                              "notebook; may be repeated.")] = None,
             parameters: Annotated[bool, typer.Option("--parameters", help="List its parameters.")] = False,
             out: Annotated[Path | None, opt.path_option("--out", "The page; default: results/notebooks/NAME.html.")]
             = None) -> None:
    """Executes a notebook with your values and writes one page that needs no network."""
    from specdec_lib.commands import notebook as nb
    from specdec_lib.commands.page_conclusion import concluded

    if not name and (values or parameters):
        raise Refusal("-p and --parameters are of one notebook: name it, such as 40 or respec")
    if not name:
        typer.echo("\n".join(nb.listing()))
        return
    path = nb.notebook_called(name)
    if parameters:
        typer.echo("\n".join(nb.parameter_lines(path)))
        return
    given = nb.values_of(path, values or (), recordings)
    try:
        page = nb.write_page(path, given, out or OUT / "notebooks" / f"{path.stem}.html")
    except KeyboardInterrupt:
        raise Stopped("stopped: an older page is as it was, the same command starts over") from None
    typer.echo("\n".join((*concluded(page.read_text(encoding="utf-8")), f"page in {page}")))


def lab() -> None:
    """Opens the tour in JupyterLab, on copies of the notebooks, so that the checkout keeps none of your outputs."""
    from specdec_lib.commands.lab import open_lab

    open_lab(say)


def site(out: Annotated[Path, opt.path_option("--out", "The folder of the site.")] = OUT / "site",
         names: Annotated[str | None, typer.Option("--notebooks", help="Numbers or names, separated by commas; "
                                                   "default: all.")] = None,
         jobs: Annotated[int, typer.Option("--jobs", min=1, help="Notebooks that run at once.")] = 2,
         smoke: Annotated[bool, typer.Option("--smoke", help="With the values of a quick run.")] = False) -> None:
    """Executes the notebooks and writes them as one static site that needs no network."""
    from specdec_lib.bench.progress import bar
    from specdec_lib.commands import site as pages

    try:
        with bar("site") as progress:
            start = pages.write_site(out, None if names is None else names.split(","), jobs, smoke, progress)
    except KeyboardInterrupt:
        raise Stopped(f"stopped: the pages that are finished stay in {out}, the same command starts over") from None
    typer.echo(f"site in {start}")
