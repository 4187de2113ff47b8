"""A fit learns, resumes after a kill with the same result, and keeps to its minutes."""

import json

import pytest
import torch

from specdec_lib.training.fit import (
    KEPT_LOG,
    LOG,
    STATE,
    Progress,
    Settings,
    fit,
    keep_log,
    optimiser_of,
    read_log,
    save_state,
    schedule,
    share_done,
)
from specdec_lib.training.losses.objective import Objective
from specdec_lib.types import Refusal
from tests.training.fitting import (  # noqa: F401
    GROUPS,
    Killed,
    features_fixture,
    killing,
    log,
    run,
    start,
    target_fixture,
)


@pytest.mark.parametrize("name", ["eagle", "draft-lm", "early-exit"])
@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_a_small_set_is_overfitted(target, features, tmp_path, name, optimiser):
    settings = Settings(steps=60, rate=0.02, optimiser=optimiser)
    run(start(target, name), features, tmp_path, settings, [(0, 1, 2, 3, 4)])
    lines = log(tmp_path)
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.3   # the target's own entropy stays
    assert sum(lines[-1]["right"]) > sum(lines[0]["right"]) + 0.2


def test_a_fit_of_more_steps_than_are_asked_for_is_refused(target, features, tmp_path):
    run(start(target), features, tmp_path, Settings(steps=3))
    with pytest.raises(Refusal, match="has 3 steps, more than the 2 asked for"):
        run(start(target), features, tmp_path, Settings(steps=2))


def test_nothing_to_train_on_is_refused(target, features, tmp_path):
    with pytest.raises(Refusal, match="nothing to train on"):
        run(start(target), features, tmp_path, groups=[])


@pytest.mark.parametrize("rate", [1e30, 1e38])
def test_a_fit_that_diverges_is_refused_and_saves_no_such_numbers(target, features, tmp_path, rate):
    with pytest.raises(Refusal, match="the training has diverged, .*: give a smaller --rate"):
        run(start(target), features, tmp_path, Settings(steps=9, rate=rate, save_every=1e9))
    assert not (tmp_path / STATE).exists()


def test_numbers_that_are_not_finite_are_not_saved(target, tmp_path):
    drafter, settings = start(target), Settings(steps=9)
    with torch.no_grad():
        drafter.norm[0] = float("inf")
    with pytest.raises(Refusal, match="the training has diverged"):
        save_state(tmp_path, drafter, optimiser_of(drafter, settings), settings, Progress())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"minutes": 0}, {"minutes": -1.0}, {"rate": 0.0}, {"steps": 0}], ids=str)
def test_settings_of_zero_or_less_are_refused(wrong):
    with pytest.raises(ValueError, match="above 0"):
        Settings(**wrong)


def test_an_unknown_optimiser_is_refused():
    with pytest.raises(ValueError, match="no optimiser 'sgd'"):
        Settings(optimiser="sgd")


class Watch:
    """A clock that stands still but for `seconds` a batch and `look` seconds a look."""

    def __init__(self, features, seconds, look=1.5):
        self.features, self.seconds, self.look, self.now, self.looks = features, seconds, look, 1000.0, []

    def __call__(self):
        return self.now

    def batch_of(self, group):
        self.now += self.seconds
        return self.features(group, ())

    def judge(self):
        self.now += self.look
        self.looks.append(self.now)
        return {"held_out": {"looks": len(self.looks)}}

    def fit(self, target, folder, settings, **options):
        drafter = start(target)
        return fit(drafter, GROUPS, self.batch_of, Objective(), settings, folder, self.judge, clock=self, **options)


def test_training_stops_after_its_minutes_and_measuring_does_not_count(target, features, tmp_path):
    watch = Watch(features, 7)
    end = watch.fit(target, tmp_path, Settings(minutes=1, judge_every=30, save_every=10))
    assert (end.step, end.seconds) == (9, 63.0)    # 8 steps take 56 seconds, the ninth is begun in time
    assert watch.now == 1000 + 63 + 1.5 * len(watch.looks)


def test_held_out_answers_are_measured_at_the_start_in_between_and_at_the_end(target, features, tmp_path):
    Watch(features, 7).fit(target, tmp_path, Settings(minutes=1, judge_every=30, save_every=10))
    looks = [(line["step"], line["held_out"]["looks"]) for line in log(tmp_path) if "held_out" in line]
    assert looks == [(0, 1), (5, 2), (9, 3)]


@pytest.mark.parametrize(("look", "steps"), [(1.5, [0, 5, 9]), (2, [0, 6, 9]), (3, [0, 9])])
def test_slow_measurements_are_made_less_often(target, features, tmp_path, look, steps):
    Watch(features, 7, look).fit(target, tmp_path, Settings(minutes=1, judge_every=30, save_every=10, looking=0.05))
    assert [line["step"] for line in log(tmp_path) if "held_out" in line] == steps


def test_a_killed_fit_gets_the_minutes_that_were_left(target, features, tmp_path):
    settings = Settings(minutes=1, judge_every=30, save_every=10)
    with pytest.raises(Killed):
        Watch(features, 7).fit(target, tmp_path, settings, progress=killing(7))
    end = Watch(features, 7).fit(target, tmp_path, settings)
    assert (end.step, end.seconds) == (9, 63.0)
    assert [line["step"] for line in log(tmp_path) if "held_out" in line] == [0, 5, 9]


def test_the_rate_warms_up_and_falls_to_its_floor():
    settings = Settings(warmup=0.1, floor=0.05)
    rates = [schedule(done / 100, settings) for done in range(101)]
    assert 0 < rates[0] < 0.05
    assert rates[10] == 1.0 == max(rates)
    assert rates[100] == pytest.approx(0.05)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_the_share_is_of_steps_where_they_are_given_and_else_of_minutes():
    assert share_done(Progress(3, 30.0), Settings(minutes=1)) == 0.5
    assert share_done(Progress(3, 30.0), Settings(minutes=1, steps=4)) == 0.75


def test_a_log_is_kept_packed_beside_the_checkpoint_and_read_from_either_place(tmp_path):
    lines = [{"step": 0, "held_out": {"eagle": 1.25}}, {"step": 1, "loss": 2.5}]
    (tmp_path / LOG).write_text("".join(json.dumps(line) + "\n" for line in lines))
    shelf = tmp_path / "eagle"
    shelf.mkdir()
    keep_log(shelf, tmp_path)
    first = (shelf / KEPT_LOG).read_bytes()
    keep_log(shelf, tmp_path)
    assert read_log(shelf / KEPT_LOG) == read_log(tmp_path / LOG) == lines
    assert (shelf / KEPT_LOG).read_bytes() == first
    with (tmp_path / LOG).open("ab") as damaged:
        damaged.write(b'{"step": 2, "lo\xff\0')
    keep_log(shelf, tmp_path, tmp_path / "gone")
    assert (shelf / KEPT_LOG).read_bytes() == first
