"""The report of a small run is one page that stands alone, and that runs nothing which its data bring along."""

import json
import re

import pytest

from specdec_lib.bench.environment import Environment
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.run import run_bench
from specdec_lib.cards import TokenizerFacts
from specdec_lib.commands import report
from specdec_lib.cost.curves import CostCurve
from specdec_lib.hub.tokenizer import TextStream
from specdec_lib.models.table import Table
from tests.commands.test_figure_csv import LINK, linked
from tests.held_folder import refused_beside_another
from tests.hostile import SCRIPT, running

TARGET = Table({(): (0.2, 0.7, 0.1), (1,): (0.8, 0.15, 0.05), (0, 1): (0.1, 0.2, 0.7)})
ABOUT = {"name": f"table {SCRIPT}", "device": "cpu", "dtype": "float64", "threads": 1}


def encode(messages):
    return tuple("ab.".index(letter) for _, text in messages for letter in text if letter in "ab.")


def spell(ids):
    return "".join((SCRIPT, "b", ".")[i] for i in ids)


def finished(folder, methods):
    """A run over six prompts of a three-token world."""
    prompts = [Prompt(f"{i} {SCRIPT}", SCRIPT, SCRIPT, ("ab" * (1 + i) + SCRIPT,), None) for i in range(6)]
    world = Environment(TARGET, encode, spell, lambda: TextStream(spell), TokenizerFacts(vocab=3), draft=TARGET,
                        about=ABOUT)
    run_bench(Plan(methods, max_new_tokens=8, prompts=SCRIPT, draft=SCRIPT), world, prompts, folder,
              lambda: CostCurve((1, 5, 9), (8,), ((1.0, 1.2, 2.0),)))


def test_two_reports_are_not_written_into_one_run_at_once(tmp_path, monkeypatch):
    (tmp_path / "summary.json").write_text("{}")
    monkeypatch.setattr(report.notebook_runner, "run_notebook", lambda *given, **how: pytest.fail("both ran"))
    with refused_beside_another(tmp_path):
        report.write_report(tmp_path)


@pytest.mark.notebooks
@pytest.mark.parametrize("methods", [("ar", "draft-model"), ("ar",)], ids="+".join)
def test_the_report_is_one_page_with_figures_without_code_and_without_a_network(methods, tmp_path):
    finished(tmp_path, methods)
    html = report.write_report(tmp_path).read_text()
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=.https?:", html)
    assert html.count("plotly-graph-div") >= 7
    assert running(html) == []
    assert html.count("boom()") > 10
    assert "Which speculative method is the fastest here?" in html
    assert "reading.overview" not in html
    assert str(tmp_path) not in html
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["settings"]["commit"][:12] in html
    saved = linked(html)                           # below every figure, and below the control of the last
    assert len(LINK.findall(html)) >= (9 if len(methods) > 1 else 3)
    times = {row["x"]: float(row["y"]) for rows in saved.values() for row in rows
             if row["series"] == "measured, 95 % interval"}
    assert times == {name: entry["speedup"] for name, entry in summary["methods"].items() if name != "ar"}
