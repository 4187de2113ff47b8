"""The results that the README shows are those of the kept runs."""

import json
import re
from pathlib import Path

import pytest

from specdec_lib.analysis.batches import read_batches, span_text
from specdec_lib.bench.results import read_turns
from specdec_lib.bench.summary import speed_ratio

ROOT = Path(__file__).parents[1]
TOLD = (ROOT / "README.md").read_text().partition("## What came out")[2].partition("\n## ")[0]
RUNS = {"ReSpec": ("respec", "respec-avx2", "h200/bench"),         # the columns of each table, in order
        "DiffuSpec": ("diffuspec", "diffuspec-avx2", "h200/bench")}
COLUMNS = [(table, place) for table, runs in RUNS.items() for place in range(len(runs))]
LATER = "diffuspec(depth=4,first=2)"
PAPER = "diffuspec(rule='printed',shortest=20,longest=30,growth=10,score='sum')"
TRIGGER = "sam+eagle2+trigger(theta=1.5,match=1)"
HYBRID, REMEMBERING = "suffix-decoding+eagle2", "suffix-decoding(remember=100000) (warm)"
RATIOS = {("spec-bench", "respec-relaxed", "eagle2"): "1.12 times (1.09 to 1.15)",
          ("spec-bench", "respec-relaxed", "sam+eagle2"): "1.04 times (1.02 to 1.05)",
          ("spec-bench", "respec", "sam+eagle2"): "1.00 times (0.99 to 1.01)",
          ("respec", "respec-relaxed", "eagle2"): "1.28 times (1.18 to 1.42)",
          ("respec", "respec-relaxed", "sam+eagle2"): "1.11 times (1.07 to 1.16)",
          ("respec", "respec-relaxed", "sam+eagle2@relaxed"): "1.05 times (1.02 to 1.08)",
          ("respec", "respec", "sam+eagle2"): "1.05 times (1.02 to 1.07)",
          ("respec", TRIGGER, "sam+eagle2"): "0.91 times (0.88 to 0.95)",
          ("respec-amx", "respec", "sam+eagle2"): "0.94 times (0.91 to 0.98)",
          ("respec-avx2", "respec", "sam+eagle2"): "0.99 times (0.95 to 1.03)",
          ("suffix-decoding", "suffix-decoding", "sam"): "1.06 times (1.03 to 1.10)",
          ("suffix-decoding", HYBRID, "respec"): "1.03 times (1.01 to 1.05)",
          ("suffix-decoding", f"{HYBRID}@relaxed", "respec-relaxed"): "1.08 times (1.05 to 1.11)",
          ("similar", REMEMBERING, "suffix-decoding"): "1.12 times (1.01 to 1.29)",
          ("diffuspec", PAPER, "ar"): "0.51 times (0.44 to 0.58)",
          ("diffuspec", "diffuspec", "diffusion-draft(depth=4)"): "0.94 times (0.92 to 0.97)",
          ("diffuspec", "diffuspec", "diffuspec(depth=4)"): "1.03 times (1.01 to 1.05)",
          ("diffuspec", LATER, "diffusion-draft(depth=4)"): "0.97 times (0.949 to 0.995)",
          ("diffuspec-avx2", "diffuspec", "diffusion-draft(depth=4)"): "0.97 times (0.946 to 0.999)",
          ("diffuspec-avx2", "diffuspec", "diffuspec(depth=4)"): "1.03 times (1.01 to 1.05)",
          ("diffuspec-avx2", LATER, "diffusion-draft(depth=4)"): "0.98 times (0.96 to 1.00)"}


def summary(run):
    return json.loads((ROOT / "data" / "results" / run / "summary.json").read_text())


def table_of(name):
    """The headings of a table's runs, and its rows: method, whether it is lossless, cells."""
    head, rows = re.search(rf"^\| {name}'s runs \| lossless \| (.*) \|\n\|[-|]+\n((?:\|.*\n)+)", TOLD, re.M).groups()
    return head.split("|"), re.findall(r"^\| `([^`]+)` \| (yes|no) \| (.*) \|$", rows, re.M)


@pytest.mark.parametrize(("table", "place"), COLUMNS)
def test_a_column_of_a_table_is_the_summary_of_its_run(table, place):
    told, rows = summary(RUNS[table][place]), table_of(table)[1]
    shown = {name: cells.split("|")[place].strip(" *") for name, _, cells in rows}
    assert len(rows) >= 6
    assert sum(map(bool, shown.values())) >= 2
    for name, cell in shown.items():
        entry = told["methods"].get(name)
        low, high = entry["speedup_ci"] if entry else (None, None)
        assert cell == (f"{entry['speedup']:.2f} ({low:.2f} to {high:.2f})" if entry else ""), name


@pytest.mark.parametrize("table", RUNS)
def test_a_table_says_of_each_method_whether_it_is_lossless_and_of_each_column_its_prompts(table):
    heads, rows = table_of(table)
    told = [summary(run) for run in RUNS[table]]
    known = {name: entry["lossless"] for one in told for name, entry in one["methods"].items()}
    assert {name: lossless == "yes" for name, lossless, _ in rows} == {name: known[name] for name, *_ in rows}
    assert [int(re.search(r"(\d+) prompts", head)[1]) for head in heads] == [one["prompts"]["count"] for one in told]


@pytest.mark.parametrize(("run", "method", "base"), RATIOS, ids=" ".join)
def test_a_ratio_is_that_of_its_run_paired_over_prompts(run, method, base):
    ratio, (low, high) = speed_ratio(read_turns(ROOT / "data" / "results" / run), base, method)
    numbers = re.findall(r"\d\.\d+", RATIOS[run, method, base])
    found = zip(numbers, (ratio, low, high), strict=True)
    assert numbers == [f"{value:.{len(number) - 2}f}" for number, value in found]
    assert RATIOS[run, method, base] in " ".join(TOLD.split())


def test_the_relaxed_method_keeps_as_many_ids_as_the_readme_says():
    entry = summary("respec")["methods"]["respec-relaxed"]
    assert f"{entry['identical_prompts']} of {entry['prompts']} prompts keep" in " ".join(TOLD.split())


def test_relaxed_continuations_keep_as_many_ids_as_the_readme_says():
    found = summary("suffix-decoding")["methods"]
    kept, others = (found[name]["identical_prompts"] for name in (f"{HYBRID}@relaxed", "respec-relaxed"))
    assert f"ids on {kept} prompts instead of {others}" in " ".join(TOLD.split())


def test_the_search_from_the_second_slot_loses_no_tokens():
    found = summary("diffuspec")["methods"]
    plain, whole, later = (found[name]["tokens_per_target_forward"] for name in
                           ("diffusion-draft(depth=4)", "diffuspec(depth=4)", LATER))
    assert whole < plain <= later


def test_as_many_prompts_part_from_plain_decoding_on_the_h200_as_the_readme_says():
    found = summary("h200/bench")["methods"]
    assert {name: entry["prompts"] - entry["identical_prompts"] for name, entry in found.items()
            if entry["lossless"] and entry["identical_prompts"] < entry["prompts"]} == {"eagle2": 1, "respec": 1}


def test_what_eight_sequences_gain_is_that_of_the_kept_table():
    table = read_batches()
    plain, sized, fixed = ({row.batch: row for row in table.of("bfloat16", name)}
                           for name in ("ar", "sam", "sam(depth=4)"))
    more = plain[8].measures["tokens_per_second"] / plain[1].measures["tokens_per_second"]
    said = " ".join(TOLD.split())
    assert f"makes {more:.1f} times as many tokens" in said
    assert f"({sized[8].speedup:.2f} times, {span_text(sized[8])} by repeat)" in said
    assert f"it is at {fixed[8].speedup:.2f} times" in said
    assert all(row.span[0] < 1 for row in table.rows if row.batch == 8 and row.method != "ar")
