"""After a bench its fastest methods stand in a table, in plain text where no terminal shows it."""

import io
import json
import re

from rich.console import Console

from specdec_lib import cli
from specdec_lib.commands.bench_table import show_speeds
from specdec_lib.commands.text_table import print_table
from tests.small_bench import bench_fixture, curve_fixture, model_fixture, prompts_fixture, refused  # noqa: F401  the fixtures of a small bench

ROWS = [{"method": "sam[x]", "times": "1.50", "note": "a b"}, {"method": "ar", "times": "1.00", "note": ""}]


def terminal(width=100):
    return Console(file=io.StringIO(), force_terminal=True, width=width, _environ={"TERM": "xterm"})


def test_numbers_stand_right_and_names_left_with_and_without_a_terminal():
    plain = Console(file=io.StringIO(), width=20)
    print_table(ROWS, plain, left=("note",))
    assert plain.file.getvalue().splitlines() == ["method  times  note", "sam[x]   1.50  a b ", "ar       1.00      "]
    shown = terminal()
    print_table(ROWS, shown)
    assert "\x1b[1m" in shown.file.getvalue()
    assert "─" in shown.file.getvalue()
    quiet = terminal()
    print_table(ROWS, quiet, plain=True)
    assert "\x1b" not in quiet.file.getvalue()


def test_a_bench_ends_with_its_table_and_a_finished_one_shows_it_again(bench, tmp_path, capsys):
    assert cli.run([*bench, "--methods", "ar,sam", "--quiet"]) == 0
    first = capsys.readouterr()
    lines = first.out.splitlines()
    assert re.split(r"\s{2,}", lines[0].strip()) == ["method", "times ar (95 %)", "tokens per forward", "tokens/s",
                                                     "same ids", "ms to first token"]
    assert sorted(line.split()[0] for line in lines[1:3]) == ["ar", "sam"]
    assert all("2 of 2" in line for line in lines[1:3])
    assert lines[-1].startswith("results in")
    assert cli.run([*bench, "--methods", "ar,sam"]) == 0
    assert capsys.readouterr().out == first.out
    path = tmp_path / "out" / "summary.json"
    kept = json.loads(path.read_text())
    del kept["methods"]["sam"]["speedup"]
    path.write_text(json.dumps(kept))
    assert "is not the summary of a run (KeyError)" in refused([*bench, "--methods", "ar,sam"], capsys)


def test_what_has_no_line_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("specdec_lib.commands.bench_table.load_report", lambda run: None)
    monkeypatch.setattr("specdec_lib.commands.bench_table.speed_rows", lambda report: ROWS)
    monkeypatch.setattr("specdec_lib.commands.bench_table.left_out", lambda report: "3 more in summary.json")
    out = terminal()
    show_speeds(tmp_path, console=out)
    assert out.file.getvalue().rstrip().endswith("3 more in summary.json")


def test_plain_text_is_as_wide_as_its_cells_so_that_nothing_of_them_is_cut():
    rows = [{"method": "m" * 120, "speed": "1.00 (0.90 to 1.10)", "same ids": "7 of 7", "note": "n" * 40}]
    out = Console(file=io.StringIO(), width=80)
    print_table(rows, out, plain=True)
    assert all(cell in out.file.getvalue() for cell in rows[0].values())
