"""`specdec compare` on committed runs and on a damaged copy."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from specdec_lib import cli
from specdec_lib.analysis.run_comparison import MethodInRun
from specdec_lib.commands.compare import cells, compare_folders, show_comparison

RESULTS = Path(__file__).parents[2] / "data" / "results"
ONE, TWO = str(RESULTS / "report"), str(RESULTS / "copies")


def test_two_runs_stand_side_by_side_with_a_sentence_on_what_is_not_averaged(tmp_path, capsys):
    out = tmp_path / "new" / "both.csv"
    assert cli.run(["compare", ONE, TWO, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "Nothing is averaged over these runs" in told
    rows = list(csv.DictReader(out.open()))
    summaries = {name: json.loads((RESULTS / name / "summary.json").read_text()) for name in ("report", "copies")}
    days = [summary["created"][:10] for summary in summaries.values()]
    assert all(word in told for word in ("report", "copies", "sam+token-recycling", *days))
    assert {(row["run"], row["method"]) for row in rows} == {
        (name, method) for name, told in summaries.items() for method in (*told["methods"], *told["peers"])}
    sam = next(row for row in rows if row["method"] == "sam")
    assert float(sam["measured_speedup"]) == pytest.approx(summaries["report"]["methods"]["sam"]["speedup"], 1e-6)


def test_a_run_and_its_copy_elsewhere_are_averaged_and_told_apart_by_their_folders(tmp_path, capsys):
    shutil.copytree(ONE, tmp_path / "report")
    assert cli.run(["compare", ONE, str(tmp_path / "report")]) == 0
    told = capsys.readouterr().out
    assert "results/report" in told
    assert "all 2" in told
    assert "averaged" not in told


@pytest.mark.parametrize("name", ["summary.json", "decodes.parquet", "rounds.parquet"])
def test_a_pipe_in_the_place_of_a_file_of_a_run_is_never_waited_for(name, tmp_path, capsys):
    shutil.copytree(ONE, tmp_path / "odd")
    (tmp_path / "odd" / name).unlink()
    os.mkfifo(tmp_path / "odd" / name)
    assert cli.run(["compare", ONE, str(tmp_path / "odd")]) == 2
    assert f"{name} is a pipe or a device" in capsys.readouterr().err


def test_one_run_a_damaged_one_and_a_folder_for_the_csv_are_refused(tmp_path, capsys):
    shutil.copytree(ONE, tmp_path / "cut")
    (tmp_path / "cut" / "summary.json").write_text("[")
    for words, why in (([ONE], "at least two"), ([ONE, str(tmp_path / "cut")], "holds no finished run"),
                       ([ONE, TWO, "--out", str(tmp_path)], "is a folder"),
                       ([ONE, TWO, "--out", f"{TWO}/summary.json"], "is a file of the run in")):
        assert cli.run(["compare", *words]) == 2
        assert why in capsys.readouterr().err


def test_a_simulated_speed_stands_in_the_last_column_alone():
    simulated, measured = (cells(MethodInRun("one", "sam", time, 2.0, 9.0, 1.5, None), True)
                           for time in ("simulated", "in turn"))
    assert (simulated[3:5], simulated[-1]) == (["", ""], "1.50")
    assert (measured[3:5], measured[-1]) == (["9.0", "1.50"], "")


def test_in_a_terminal_of_80_columns_no_number_is_cut_and_long_methods_fold():
    narrow = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    found = compare_folders([Path(ONE), Path(TWO)])
    show_comparison(found, narrow)
    told = narrow.file.getvalue()
    assert max(map(len, told.splitlines())) <= 80
    assert "tokens/s" not in told
    assert "All times: in turn." in told
    last = next(row for row in found.rows if row.method == "sam+token-recycling" and row.run == "copies")
    assert f"{last.speedup:.2f} ({last.interval[0]:.2f} to {last.interval[1]:.2f})" in told
    assert f"{last.against_first:.2f} ({last.against_interval[0]:.2f} to {last.against_interval[1]:.2f})" in told
    assert "\n cling " in told
