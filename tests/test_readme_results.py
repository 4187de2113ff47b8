"""The results that the README shows are those of the kept runs."""

import json
import re
from pathlib import Path

import pytest

from specdec_lib.bench.results import read_results
from specdec_lib.bench.summary import speed_ratio

ROOT = Path(__file__).parents[1]
TOLD = (ROOT / "README.md").read_text().partition("## What came out")[2].partition("\n## ")[0]
RUNS = ("respec", "diffuspec", "h200/bench")       # the columns of the table, in order
ROWS = re.findall(r"^\| `([^`]+)` \| (yes|no) \| (.*) \|$", TOLD, re.M)
RATIOS = {("respec", "respec-relaxed", "eagle2"): "1.28 times (1.14 to 1.46)",
          ("respec", "respec-relaxed", "sam+eagle2"): "(1.03, 0.95 to 1.10)",
          ("respec", "respec", "sam+eagle2"): "(0.94, 0.91 to 0.98)",
          ("diffuspec", "diffuspec", "diffusion-draft(depth=4)"): "0.90 times (0.86 to 0.94)"}


def summary(run):
    return json.loads((ROOT / "data" / "results" / run / "summary.json").read_text())


@pytest.mark.parametrize("column", range(3), ids=RUNS)
def test_a_column_of_the_table_is_the_summary_of_its_run(column):
    told = summary(RUNS[column])
    shown = {name: cells.split("|")[column].strip(" *") for name, _, cells in ROWS}
    assert sum(map(bool, shown.values())) >= 5
    for name, cell in shown.items():
        entry = told["methods"].get(name)
        low, high = entry["speedup_ci"] if entry else (None, None)
        assert cell == (f"{entry['speedup']:.2f} ({low:.2f} to {high:.2f})" if entry else ""), name


def test_the_table_says_of_each_method_whether_it_is_lossless_and_of_each_column_its_prompts():
    known = {name: entry["lossless"] for run in RUNS for name, entry in summary(run)["methods"].items()}
    assert {name: lossless == "yes" for name, lossless, _ in ROWS} == {name: known[name] for name, _, _ in ROWS}
    heads = re.search(r"^\| times as fast.*$", TOLD, re.M)[0].split("|")[3:6]
    assert [int(re.search(r"(\d+) prompts", head)[1]) for head in heads] == [summary(run)["prompts"]["count"]
                                                                             for run in RUNS]


@pytest.mark.parametrize(("run", "method", "base"), RATIOS, ids=" ".join)
def test_a_ratio_is_that_of_its_run_paired_over_prompts(run, method, base):
    ratio, (low, high) = speed_ratio(read_results(ROOT / "data" / "results" / run), base, method)
    numbers = [float(number) for number in re.findall(r"\d\.\d\d", RATIOS[run, method, base])]
    assert numbers == [round(ratio, 2), round(low, 2), round(high, 2)]
    assert RATIOS[run, method, base] in " ".join(TOLD.split())


def test_the_relaxed_method_keeps_as_many_ids_as_the_readme_says():
    entry = summary("respec")["methods"]["respec-relaxed"]
    assert f"{entry['identical_prompts']} of {entry['prompts']} prompts keep" in " ".join(TOLD.split())
