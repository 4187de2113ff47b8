"""A canvas run keeps what it found, continues where it was stopped, and says what the methods promise."""

import json
from dataclasses import replace

import pytest

from specdec_lib.bench import canvas_run
from specdec_lib.bench.canvas_folder import CanvasFolder
from specdec_lib.bench.canvas_results import read_canvas_run
from specdec_lib.bench.canvas_run import CanvasPlan, run_canvases
from specdec_lib.bench.canvas_summary import cost_ratios, summary_table
from specdec_lib.canvas.catalog import canvas_specs
from specdec_lib.canvas.forecast import forecast
from specdec_lib.canvas.types import CanvasTask, CanvasWorld
from specdec_lib.canvas.worlds import open_world
from specdec_lib.specs import write_part
from specdec_lib.types import Refusal
from tests.canvas.tables import empty

METHODS = "stepwise,parallel(k=2),ssd(rows=4, tree='jump'),tolerator(forwards=6)"


def plan(methods=METHODS, keep=2, seed=0) -> CanvasPlan:
    return CanvasPlan.of(canvas_specs(methods), seed, keep)


def quiet(done, total, what):
    pass


def lasting(summary: dict) -> dict:
    """A summary without times."""
    text = {name: {key: value for key, value in one.items() if not key.startswith(("seconds", "times", "by_"))}
            for name, one in summary["methods"].items()}
    return {"settings": summary["settings"], "methods": text}


def test_a_run_is_read_back_with_numbers_of_all_tasks_and_rounds_of_the_kept_ones(tmp_path):
    world = open_world("table", 6)
    told = run_canvases(plan(), world, tmp_path, quiet)
    run = read_canvas_run(tmp_path)
    assert run.summary == json.loads(json.dumps(told))
    assert run.methods == tuple(map(str.strip, ("stepwise", "parallel(k=2)", "ssd(rows=4, tree='jump')",
                                                 "tolerator(forwards=6)")))
    assert [len(run.of(method)) for method in run.methods] == [6] * 4
    assert set(run.tasks) == {"table-000", "table-001"}
    for one in run.decodes:
        assert bool(one.rounds) == (one.task in run.tasks)
        if one.rounds:
            session = run.session(one.method, one.task)
            assert session.canvas.full
            assert (session.canvas.tokens == run.tasks[one.task].answer) == one.solved
            assert (session.forwards, session.rows) == (one.forwards, one.rows)
    with pytest.raises(Refusal, match="table-000"):
        run.session("stepwise", "table-005")
    assert not (tmp_path / "parts").exists()


def test_ssd_is_identical_on_every_task_and_saves_forwards(tmp_path):
    told = run_canvases(plan(), open_world("table", 12), tmp_path, quiet)["methods"]
    ssd, stepwise = told["ssd(rows=4, tree='jump')"], told["stepwise"]
    assert (ssd["identical"], ssd["promised"]) == (12, 12)
    assert stepwise["identical"] is None
    assert ssd["solved"] == stepwise["solved"]
    assert ssd["forwards_saved"] == pytest.approx(1 - ssd["forwards"] / stepwise["forwards"], rel=1e-5)
    assert ssd["forwards_saved"] > 0
    assert stepwise["tokens_per_forward"] == 1
    assert ssd["tokens_per_forward"] > 1
    low, high = ssd["tokens_per_forward_ci"]
    assert low <= ssd["tokens_per_forward"] <= high
    assert sum(one["tasks"] for one in ssd["by_family"].values()) == 12
    assert "12 of 12" in summary_table({"methods": told, "row_cost": {"1": 1.0}})


def test_a_stopped_run_continues_with_the_next_task_and_ends_as_one_that_was_not_stopped(tmp_path, monkeypatch):
    world = open_world("table", 4)
    expected = run_canvases(plan(), world, tmp_path / "calm", quiet)

    def stop_at(done, total, what):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_canvases(plan(), world, tmp_path / "stopped", stop_at)
    asked = []
    known = canvas_run.decode_task
    monkeypatch.setattr(canvas_run, "decode_task", lambda plan, world, task, number, keep: asked.append(task.id)
                        or known(plan, world, task, number, keep))
    told = run_canvases(plan(), world, tmp_path / "stopped", quiet)
    assert asked == ["table-002", "table-003"]
    assert lasting(told) == lasting(expected)
    numbers = [[(one.task, one.method, one.forwards, one.wrong, one.quality, [each.tokens for each in one.rounds])
                for one in read_canvas_run(tmp_path / folder).decodes] for folder in ("calm", "stopped")]
    assert numbers[0] == numbers[1]


def test_a_run_warms_up_and_each_task_begins_with_another_method(tmp_path, monkeypatch):
    begun, known = [], canvas_run.make_canvas_method
    monkeypatch.setattr(canvas_run, "make_canvas_method", lambda spec, model: begun.append(write_part(spec))
                        or known(spec, model))
    one = plan("stepwise,parallel(k=2)")
    told = run_canvases(one, open_world("table", 3), tmp_path, quiet)
    assert list(told["methods"]) == ["stepwise", "parallel(k=2)"]
    assert begun == ["stepwise", "stepwise", "parallel(k=2)", "parallel(k=2)", "stepwise", "stepwise", "parallel(k=2)"]


def test_a_finished_run_is_returned_and_another_one_refused(tmp_path, monkeypatch):
    world = open_world("table", 2)
    told = run_canvases(plan(), world, tmp_path, quiet)
    monkeypatch.setattr(canvas_run, "decode_task", None)
    assert run_canvases(plan(), world, tmp_path, quiet) == json.loads(json.dumps(told))
    for other in (plan(seed=1), plan("stepwise")):
        with pytest.raises(Refusal, match="other settings"):
            run_canvases(other, world, tmp_path, quiet)


@pytest.mark.parametrize("damage", ["[1]", "{", '{"decodes": [{}]}'])
def test_a_damaged_part_is_refused(tmp_path, damage):
    world = open_world("table", 1)
    CanvasFolder(tmp_path, plan().settings(world))
    (tmp_path / "parts" / "00000.json").write_text(damage)
    with pytest.raises(Refusal, match="00000"):
        run_canvases(plan(), world, tmp_path, quiet)


@pytest.mark.parametrize("name", ["summary.json", "tasks.json", "parts", "settings.json"])
def test_a_folder_of_something_else_is_refused_and_stays_as_it_was(name, tmp_path):
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(Refusal, match="give another --out"):
        run_canvases(plan(), open_world("table", 1), tmp_path, quiet)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == '{"mine": 1}'


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(Refusal, match="no finished canvas run"):
        read_canvas_run(tmp_path)


@pytest.mark.parametrize("table", ["decodes", "rounds"])
def test_a_damaged_table_is_refused_in_one_line(tmp_path, table):
    run_canvases(plan(), open_world("table", 1), tmp_path, quiet)
    file = tmp_path / f"{table}.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:4] + bytes(range(60)) + content[64:])
    with pytest.raises(Refusal, match="no finished canvas run") as refused:
        read_canvas_run(tmp_path)
    assert len(str(refused.value).splitlines()) == 1


class RoundsByRows:
    """A model whose numbers depend on the rows of the batch, as matrix products' rounding does: 0 and 1 nearly tie."""

    vocab, mask, end = 3, 2, ()

    def __call__(self, canvases):
        import torch

        nudge = 1e-12 if len(canvases) > 1 else -1e-12
        logits = torch.tensor([nudge, 0.0, -9.0], dtype=torch.float64) * torch.ones(len(canvases), 4, 1)
        return forecast(logits, range(4), 2)


@pytest.mark.parametrize("spec", ["ssd(rows=4)", "ssd"])
def test_a_flip_that_only_rounding_made_is_told_from_a_broken_promise(tmp_path, spec):
    model = RoundsByRows()
    world = CanvasWorld("made-up", model, (CanvasTask("one", empty(model)),), lambda task, canvas: None)
    told = run_canvases(plan(spec), world, tmp_path, quiet)["methods"][spec]
    assert (told["identical"], told["promised"], told["identical_at_one_shape"]) == (0, 1, 1)
    assert told["solved"] is None
    [one] = read_canvas_run(tmp_path).of(spec)
    assert (one.identical, one.at_shape, one.wrong) == (False, True, None)


def test_costs_of_rows_are_told_in_forwards_of_one_row():
    assert cost_ratios({1: .002, 2: .003, 8: .01}) == {"1": 1.0, "2": 1.5, "8": 5.0}


def test_intervals_need_five_tasks(tmp_path):
    world = open_world("table", 6)
    few = run_canvases(plan(), replace(world, tasks=world.tasks[:4]), tmp_path / "few", quiet)
    assert few["methods"]["stepwise"]["solved_ci"] is None
