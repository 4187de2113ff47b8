"""Contention: the factor from pairs by hand, what runs beside what, and the file that keeps it."""

import json
import multiprocessing
import os
from contextlib import nullcontext
from time import sleep

import pytest

from specdec_lib import cli
from specdec_lib.cost import contention as module
from specdec_lib.cost.contention import ContentionRun, ForwardStep, SecondsPair, load_contention, measure_contention
from specdec_lib.types import Refusal
from tests.cost.ticks import Ticks
from tests.training.folder import model_folder
from tests.worlds import Scripted

TARGET = tuple(SecondsPair(1.0, beside) for beside in (1.5, 1.1, 1.2))
DRAFTER = tuple(SecondsPair(.1, beside) for beside in (.1, .2, .13))


@pytest.fixture
def two_cores(monkeypatch):
    """A machine of two cores, whatever it is; nobody is bound to them."""
    monkeypatch.setattr(module, "cores_here", lambda: frozenset({0, 1}))
    monkeypatch.setattr(module, "computing_on", lambda cores: nullcontext())


def test_kappa_is_the_median_of_the_targets_pairs_and_at_least_one():
    run = ContentionRun(TARGET, DRAFTER)
    assert run.kappa == 1.2
    assert "a forward of the target takes 1000.0 ms alone and 1.20 times as long (quartiles 1.15 to 1.35)" in run.told()
    assert "a draft step takes 100.0 ms alone and 1.30 times as long" in run.told()
    assert ContentionRun((SecondsPair(1.0, .9),) * 3, DRAFTER).kappa == 1


def test_a_saved_measurement_is_read_back_and_a_damaged_one_is_refused(tmp_path):
    run = ContentionRun(TARGET, DRAFTER, {"dtype": "float32"})
    run.save(tmp_path / "new" / "run.json")
    assert load_contention(tmp_path / "new" / "run.json") == run
    assert json.loads((tmp_path / "new" / "run.json").read_text())["kappa"] == 1.2
    for wrong in ("", "[]", '{"forward": [[1, 2]], "draft step": [[1, 2]]}', '{"forward": 3}',
                  '{"forward": [[1, 2], [0, 1]], "draft step": [[1, 2], [1, 2]]}',
                  f'{{"forward": [[1, {10 ** 400}]]}}'):
        (tmp_path / "bad.json").write_text(wrong)
        with pytest.raises(Refusal, match="holds no contention"):
            load_contention(tmp_path / "bad.json")
    with pytest.raises(Refusal, match="cannot be read"):
        load_contention(tmp_path / "none.json")


def test_a_window_is_the_mean_of_its_steps():
    assert module.timed(lambda: None, 1.0, Ticks(.25)) == .25
    assert module.timed(lambda: None, 0.0, Ticks(.5)) == .5


@pytest.mark.usefixtures("two_cores")
def test_the_drafter_steps_beside_the_target_and_rests_while_it_is_timed_alone(monkeypatch):
    steps, seen = multiprocessing.get_context("fork").Value("i", 0), []
    timed = module.timed

    def watched(step, seconds):
        before = steps.value
        found = timed(step, seconds)
        seen.append((before, steps.value))
        return found

    def draft():
        steps.value += 1
        sleep(.004)

    monkeypatch.setattr(module, "timed", watched)
    run = measure_contention(lambda: None, draft, pairs=3, seconds=.005)
    _, *windows = seen                             # the first one warms up
    alone, beside = windows[::2], windows[1::2]
    assert len(alone) == len(beside) == 3
    assert all(before == after for before, after in alone)
    assert all(start > rest for (_, rest), (start, _) in zip(alone, beside, strict=True)), "begun before it is timed"
    assert (len(run.target), len(run.drafter)) == (3, 3)
    assert all(min(pair) >= .004 for pair in run.drafter), "the mean over its steps"
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("two_cores")
def test_a_drafting_process_that_ends_is_said_and_none_stays():
    with pytest.raises(Refusal, match="has ended"):
        measure_contention(lambda: None, lambda: os._exit(3), pairs=2, seconds=.001)
    assert not multiprocessing.active_children()


def test_one_core_and_one_pair_are_refused(monkeypatch):
    with pytest.raises(Refusal, match="2 pairs of windows or more"):
        measure_contention(lambda: None, lambda: None, pairs=1)
    monkeypatch.setattr(module, "cores_here", lambda: frozenset({0}))
    with pytest.raises(Refusal, match="only one"):
        measure_contention(lambda: None, lambda: None)


def test_a_step_is_one_forward_of_one_row_with_a_new_last_token():
    lm, asked = Scripted((1, 2), (3,) * 20), []
    step = ForwardStep(lm, 5, 30)
    original = lm.__call__
    step.lm = type("Watched", (), {"__call__": lambda self, *words: asked.append(words) or original(*words)})()
    step()
    step()
    assert lm.prefilled == 5
    assert [(tokens[:5] == step.base, len(tokens), len(draft)) for tokens, draft in asked] == [(True, 6, 0)] * 2
    assert asked[0][0] != asked[1][0]


@pytest.mark.usefixtures("two_cores")
def test_the_command_measures_and_writes_a_file_that_names_its_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "WINDOW", .002)
    monkeypatch.setattr("specdec_lib.commands.contention.kind_for", lambda name, device: "process")
    words = ["cost", "--contention", "--target", str(model_folder(tmp_path / "tiny")), "--draft", "first-layers",
             "--device", "cpu", "--dtype", "float32", "--threads", "1", "--contexts", "8", "--repeats", "2", "--out",
             str(tmp_path / "run.json")]
    assert cli.run(words) == 0
    run = load_contention(tmp_path / "run.json")
    assert len(run.target) == 2
    assert run.about["dtype"] == "float32"
    assert run.about["provenance"]["machine"]
    assert f"kappa = {run.kappa:.2f}" in capsys.readouterr().out
    monkeypatch.setattr("specdec_lib.commands.contention.kind_for", lambda name, device: "thread")
    assert cli.run(words) == 2
