"""`specdec report`: the notebook executed on a finished run, exported as one page that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec_lib.commands import html_page, notebook_runner
from specdec_lib.commands.notebook import values_of
from specdec_lib.files import alone_in
from specdec_lib.types import Refusal

if TYPE_CHECKING:
    from specdec_lib.bench.options import PreparedRun

SHOWN = 12                                         # names in a refusal
ROOT = Path(__file__).resolve().parents[2]
REPORT = "90_report"


def notebook(name: str) -> Path:
    """A notebook of the workbook; Refusal where the package was installed without its checkout."""
    path = ROOT / "notebooks" / f"{name}.ipynb"
    if not path.is_file():
        raise Refusal(f"the notebook {name} is not beside the package: install from a checkout with pip install -e .")
    return path


def report_notebook() -> Path:
    """The report notebook, checked."""
    path = notebook(REPORT)
    notebook_runner.checked_values(path, {"run": "folder"})
    return path


def notebook_values(words: Mapping[str, str]) -> dict[str, Any]:
    """The values of the report notebook's parameters that these words give; Refusal for one that does not fit."""
    return values_of(report_notebook(), [f"{name}={word}" for name, word in words.items()])


def check_values(values: Mapping[str, Any], here: PreparedRun) -> None:
    """Refuses a method or a question that the bench to come will not have, and peers, whose rounds are not seen.

    Empty ones are chosen by the notebook.
    """
    for name, known in (("method", [*map(str, here.plan.methods)]),
                        ("question", [str(prompt.question_id) for prompt in here.prompts])):
        if values.get(name) and values[name] not in known:
            raise Refusal(f"the {name} {values[name]} of --parameters has no output to show in this run: give one of"
                          f" {', '.join(known[:SHOWN])}{', ...' if len(known) > SHOWN else ''}")


def write_report(run: Path, values: Mapping[str, Any] | None = None, progress: bool = True) -> Path:
    """Writes report.html, and the executed notebook beside it, into the folder of a finished run.

    `values` are of the notebook's other parameters. Each figure of the page has its numbers as CSV below it.
    """
    run = Path(run)
    if not (run / "summary.json").is_file():
        raise Refusal(f"{run} holds no finished run: measure one with `specdec bench --out {run}`")
    executed = run / "report.ipynb"
    with alone_in(run):
        notebook_runner.run_notebook(report_notebook(), executed, {**(values or {}), "run": str(run.resolve())},
                                     env=notebook_runner.export_env(), progress=progress)
        return html_page.to_html(executed, run / "report.html", code=False, title="Speculative decoding, measured",
                                 numbers=True)
