"""A sweep without Ray: what is kept, what is run again, what the dataset holds, and what a failure says."""

import json
import shutil
import sys

import pyarrow.parquet as pq
import pytest

from specdec_lib import cli
from specdec_lib.bench.options import RunOptions, prepare
from specdec_lib.bench.results import read_results
from specdec_lib.bench.run import run_bench
from specdec_lib.sweep import cluster, work
from specdec_lib.sweep.cells import cells_of
from specdec_lib.sweep.dataset import read_dataset
from specdec_lib.sweep.grid import read_grid
from specdec_lib.sweep.run import run_sweep
from specdec_lib.types import Refusal
from tests.bench.test_options import put_card
from tests.held_folder import refused_beside_another
from tests.sweep.worlds import in_process, make_world, nowhere, write_grid


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setattr(cluster, "start", in_process)


@pytest.fixture(scope="module")
def done(world, tmp_path_factory):
    """A finished sweep of six cells."""
    out = tmp_path_factory.mktemp("done") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "start", in_process)
        assert run_sweep(write_grid(world, "done.yaml", seeds=[0, 1]), out)[1] == 6
    return out


def test_counts_are_those_of_a_bench(world, done, tmp_path):
    options = RunOptions("ar,draft-model(depth=2)", world / "prompts.jsonl", str(world / "tiny"), "cpu", "float32", 1,
                         8, draft="first-layers")
    prepared = prepare(options)
    run_bench(prepared.plan, prepared.environment(lambda line: None), prepared.prompts, tmp_path)
    wanted = {}
    for one in read_results(tmp_path):
        if one.method != "ar":
            sums = wanted.setdefault(str(one.question_id), [0, 0, 0, 0.0])
            for place, number in enumerate((one.outcome.bought, one.outcome.forwards,
                                            sum(row.accepted for row in one.outcome.rows),
                                            sum(row.nll for row in one.outcome.rows))):
                sums[place] += number
    found = {row["question_id"]: [row[name] for name in ("tokens", "forwards", "accepted", "nll")]
             for row in read_dataset(done)[1] if row["spec"] == "draft-model(depth=2)" and row["seed"] == 0}
    assert list(found) == ["1", "2", "three"]
    assert found == {key: pytest.approx(value) for key, value in wanted.items()}


def test_a_counting_sweep_writes_no_seconds_anywhere(done):
    assert not {"seconds", "prefill", "plain_seconds"} & set(pq.read_schema(done / "cells.parquet").names)
    for path in (done / "cells").iterdir():
        assert not {"seconds", "prefill", "plain_seconds"} & set(json.loads(path.read_text())["rows"][0])


def test_settings_and_parameters_are_columns(done):
    summary, rows = read_dataset(done)
    assert len(rows) == summary["sweep"]["rows"] == 6 * 3
    assert {row["parameter.depth"] for row in rows if row["method"] == "draft-model"} == {1.0, 2.0}
    assert {row["parameter.depth"] for row in rows if row["method"] == "ar"} == {None}
    assert {row["seed"] for row in rows} == {0, 1}
    assert all(row["tokens"] == row["forwards"] for row in rows if row["method"] == "ar")
    assert all(row["accepted"] == 0 for row in rows if row["method"] == "ar")
    two = {row["cell"]: row["output"] for row in rows if row["question_id"] == "1"}
    assert len(set(two.values())) == 1             # greedy and lossless: one answer
    assert summary["settings"]["grid"]["seeds"] == [0, 1]
    assert summary["settings"]["command"]


def test_the_same_grid_again_runs_nothing_and_changes_nothing(world, done, monkeypatch):
    before = {path: path.read_bytes() for path in done.rglob("*") if path.is_file()}
    monkeypatch.setattr(cluster, "start", nowhere)
    assert run_sweep(world / "done.yaml", done)[1] == 0
    assert before == {path: path.read_bytes() for path in done.rglob("*") if path.is_file()}


def test_a_grid_of_the_same_cells_that_names_a_parameter_makes_the_table_again(world, tmp_path):
    one = {"methods": ["draft-model(depth=2)"], "seeds": [0]}
    run_sweep(write_grid(world, "plain.yaml", **one), tmp_path / "out")
    assert not any("parameter.depth" in row for row in read_dataset(tmp_path / "out")[1])
    named = [{"method": "draft-model", "parameters": {"depth": [2]}}]
    told, ran = run_sweep(write_grid(world, "named.yaml", **one | {"methods": named}), tmp_path / "out")
    assert ran == 0
    assert {row["parameter.depth"] for row in read_dataset(tmp_path / "out")[1]} == {2}
    assert told["settings"]["grid"]["methods"][0]["parameters"] == {"depth": [2]}


def test_an_enlarged_grid_runs_only_what_is_new_and_a_smaller_one_nothing(world, done):
    names = {path: path.stat().st_mtime_ns for path in (done / "cells").iterdir()}
    assert run_sweep(write_grid(world, seeds=[0, 1, 2]), done)[1] == 3
    assert {path: path.stat().st_mtime_ns for path in names} == names
    assert len(read_dataset(done)[1]) == 9 * 3
    assert run_sweep(write_grid(world), done)[1] == 0
    assert len(read_dataset(done)[1]) == 3 * 3     # the dataset is the grid's; the other cells stay
    assert len(list((done / "cells").iterdir())) == 9
    assert run_sweep(world / "done.yaml", done)[1] == 0


def test_a_timing_cell_has_seconds_of_its_own_and_of_plain_decoding_beside_it(world, tmp_path):
    run_sweep(write_grid(world, mode="timing", cores=1, repeats=2), tmp_path)
    rows = read_dataset(tmp_path)[1]
    assert all(row["seconds"] > 0 and row["plain_seconds"] > 0 for row in rows)
    assert all(row["seconds"] == row["plain_seconds"] for row in rows if row["method"] == "ar")
    assert all(row["seconds"] != row["plain_seconds"] for row in rows if row["method"] != "ar")
    counts = {row["question_id"]: row["tokens"] for row in rows if row["spec"] == "draft-model(depth=2)"}
    run_sweep(write_grid(world), tmp_path / "counted")
    once = {row["question_id"]: row["tokens"] for row in read_dataset(tmp_path / "counted")[1]
            if row["spec"] == "draft-model(depth=2)"}
    assert counts == {key: 2 * value for key, value in once.items()}


def test_a_failed_cell_is_a_sentence_the_others_go_on_and_it_is_run_again(world, tmp_path, monkeypatch, capsys):
    broken = run_one_of("draft-model(depth=1)")
    monkeypatch.setattr(cluster, "start", lambda address: in_process(address, broken))
    grid, out = str(write_grid(world)), str(tmp_path / "out")
    assert cli.run(["sweep", grid, "--out", out]) == 1
    said = capsys.readouterr()
    assert "failed: draft-model(depth=1): ZeroDivisionError: a bug" in said.err
    assert "Traceback" not in said.err
    assert {row["spec"] for row in read_dataset(out)[1]} == {"ar", "draft-model(depth=2)"}
    monkeypatch.setattr(cluster, "start", in_process)
    assert cli.run(["sweep", grid, "--out", out]) == 0
    assert "3 cells" in (told := capsys.readouterr().out)
    assert "1 of them run now" in told
    assert {line.split()[0] for line in told.splitlines()[2:5]} == {"ar", *(f"draft-model(depth={k})" for k in (1, 2))}
    assert f"`specdec notebook 91 -p sweep={out}`" in told


def bug(*words):
    raise ZeroDivisionError("a bug\nin two lines")


def run_one_of(spec: str):
    """A way to run cells in which one of them has a bug."""
    def run_cell(cell, cores, check):
        if cell.spec != spec:
            return work.run_cell(cell, cores, check)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(work, "environment", bug)
            return work.run_cell(cell, cores, check)
    return run_cell


def test_where_all_cells_fail_the_reason_is_the_refusal(world, tmp_path):
    (world / "long.jsonl").write_text('{"question_id": 1, "category": "qa", "turns": ["' + "a " * 600 + '"]}\n')
    grid = write_grid(world, methods="ar", prompts={"file": "long.jsonl"})
    with pytest.raises(Refusal, match=r"all 1 cells failed; the first, ar: .*context holds"):
        run_sweep(grid, tmp_path)
    assert not (tmp_path / "summary.json").exists()


def test_a_target_that_is_another_on_the_node_is_refused_there(world, tmp_path, monkeypatch):
    monkeypatch.setattr(work, "model_sha256", lambda target, shelf: "another")
    grid = write_grid(world, methods="ar")
    with pytest.raises(Refusal, match="of this node has other files than the driver's"):
        run_sweep(grid, tmp_path)


def test_a_checkpoint_that_is_another_on_the_node_is_refused_there_before_anything_is_loaded(world, tmp_path):
    (world / "shelf").mkdir()
    put_card(world / "shelf", "eagle", "1" * 64)
    [cell] = cells_of(read_grid(write_grid(world, methods="eagle", checkpoints="shelf")))
    shutil.rmtree(world / "shelf" / "eagle")
    put_card(world / "shelf", "eagle", "2" * 64)
    assert work.run_cell(cell, 1, True).failed == "the checkpoint eagle of this node has other files than the driver's"


def test_two_sweeps_in_one_folder_are_locked_out_by_name(world, tmp_path):
    with refused_beside_another(tmp_path):
        run_sweep(write_grid(world), tmp_path)


@pytest.mark.parametrize("damage", ["", "{}", "[" * 9999, '{"settings": {}}'])
def test_a_damaged_cell_is_refused_by_name_and_a_lost_table_is_made_again(damage, world, done, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "start", nowhere)
    table, summary = (done / "cells.parquet").read_bytes(), (done / "summary.json").read_text()
    (done / "cells.parquet").write_bytes(table[:50])
    assert run_sweep(world / "done.yaml", done)[1] == 0
    pq.write_table(pq.read_table(done / "cells.parquet")[1:], done / "cells.parquet")
    assert run_sweep(world / "done.yaml", done)[1] == 0
    assert (done / "cells.parquet").read_bytes() == table
    (done / "summary.json").write_text(damage)
    run_sweep(world / "done.yaml", done)
    assert json.loads((done / "summary.json").read_text())["sweep"] == json.loads(summary)["sweep"]
    cell = done / "cells" / f"{read_dataset(done)[1][0]['cell']}.json"
    whole = cell.read_bytes()
    cell.write_text(damage)
    with pytest.raises(Refusal, match=f"{cell.name} cannot be read .*remove it"):
        run_sweep(world / "done.yaml", done)
    cell.write_bytes(whole)


def test_a_cell_with_the_rows_of_another_is_refused(world, done):
    one, other = sorted((done / "cells").iterdir())[:2]
    whole = json.loads(kept := one.read_text())
    for rows in (json.loads(other.read_text()), {"rows": whole["rows"][1:]},
                 {"rows": [row | {"more": 1} for row in whole["rows"]]}):
        one.write_text(json.dumps(whole | rows))
        with pytest.raises(Refusal, match="cannot be read"):
            run_sweep(write_grid(world, seeds=[0, 1, 2]), done)
    one.write_text(kept)


def test_without_ray_the_command_says_what_to_install(world, tmp_path, monkeypatch, capsys):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.run(["sweep", str(write_grid(world)), "--out", str(tmp_path / "out")]) == 2
    assert "`pip install -c constraints.txt -e '.[sweep]'`" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["", "x", "http://a:1", "a:b", "local"])
def test_what_is_no_address_is_refused_at_once(address, world, tmp_path, capsys):
    assert cli.run(["sweep", str(write_grid(world)), "--out", str(tmp_path), "--address", address]) == 2
    assert "--address is auto" in capsys.readouterr().err


def test_a_folder_of_something_else_and_hidden_files_beside_the_cells_stay_as_they_were(world, tmp_path):
    (tmp_path / "summary.json").write_text("mine")
    with pytest.raises(Refusal, match="holds summary.json and no cells, .*: give another --out"):
        run_sweep(write_grid(world, "few.yaml", methods="ar"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    (tmp_path / "out" / "cells" / ".git").mkdir(parents=True)
    (tmp_path / "out" / "cells" / ".keep").write_text("mine")
    assert run_sweep(write_grid(world, "few.yaml", methods="ar"), tmp_path / "out")[1] == 1
    assert (tmp_path / "out" / "cells" / ".git").is_dir()
    assert (tmp_path / "out" / "cells" / ".keep").read_text() == "mine"
