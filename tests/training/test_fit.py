"""A fit learns, resumes after a kill with the same result, and keeps to its minutes."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specdec_lib.training.data.features import Features
from specdec_lib.training.fit import (
    KEPT_LOG,
    LOG,
    STATE,
    Progress,
    Settings,
    fit,
    keep_log,
    read_log,
    schedule,
    share_done,
)
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.types import Refusal
from tests.training.lessons import IDS, answered, drafters
from tests.training.tiny import tiny_examples, tiny_target

LEVELS, GROUPS = (1, 2, 3), [(0, 1), (2, 3), (4,)]
STEPS = Settings(steps=7, rate=0.01, save_every=0, judge_every=0)


class Killed(Exception):
    """Stands for the end of a process."""


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture(scope="module")
def features(target):
    return Features(target, answered(target, tiny_examples(5), 8), LEVELS, None)


def start(target, name="draft-lm"):
    return drafters(target, random=False)[name]


def run(drafter, features, folder, settings=STEPS, groups=GROUPS, **options) -> Progress:
    return fit(drafter, groups, lambda group: features(group, drafter.levels), Objective(), settings, folder, **options)


def log(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def steps(folder) -> list[int]:
    return [line["step"] for line in log(folder) if "loss" in line]


def killing(at: int):
    """A progress callback that dies after this step, before it is saved."""
    def progress(now, done, line):
        if now.step == at:
            raise Killed

    return progress


def weights(drafter) -> dict:
    return {name: parameter.detach().clone() for name, parameter in drafter.named_parameters()}


@pytest.mark.parametrize("name", ["eagle", "draft-lm", "early-exit"])
@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_a_small_set_is_overfitted(target, features, tmp_path, name, optimiser):
    settings = Settings(steps=60, rate=0.02, optimiser=optimiser)
    run(start(target, name), features, tmp_path, settings, [(0, 1, 2, 3, 4)])
    lines = log(tmp_path)
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.3   # the target's own entropy stays
    assert sum(lines[-1]["right"]) > sum(lines[0]["right"]) + 0.2


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
@pytest.mark.parametrize("at", [1, 2, 5, 7])
def test_a_killed_fit_resumes_to_the_same_weights_and_log(target, features, tmp_path, at, optimiser):
    settings = replace(STEPS, optimiser=optimiser)
    whole, killed, other = start(target), start(target), start(target)
    end = run(whole, features, tmp_path / "whole", settings)
    with pytest.raises(Killed):
        run(killed, features, tmp_path / "killed", settings, progress=killing(at))
    assert run(other, features, tmp_path / "killed", settings).tokens == end.tokens
    assert all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(whole).items())
    untimed = [[{key: value for key, value in line.items() if key != "seconds"} for line in log(tmp_path / folder)]
               for folder in ("whole", "killed")]
    assert untimed[0] == untimed[1]
    assert steps(tmp_path / "killed") == [1, 2, 3, 4, 5, 6, 7]


def test_each_step_has_a_seed_of_its_own_and_after_a_kill_it_has_the_same(target, features, tmp_path):
    seen = []

    class Noting(DraftLMNet):
        def loss(self, batch, objective):
            seen.append(batch.seed)
            slots, = self.slots(batch)
            return slots.square().mean(), {"loss": [0.0], "right": [0.0]}

    with pytest.raises(Killed):
        run(Noting(target, IDS, (0,)), features, tmp_path, replace(STEPS, seed=1), progress=killing(3))
    run(Noting(target, IDS, (0,)), features, tmp_path, replace(STEPS, seed=1))
    assert seen == [1_000_003 + step for step in (0, 1, 2, 2, 3, 4, 5, 6)]


def test_steps_after_the_last_save_are_repeated_and_logged_once(target, features, tmp_path):
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    def run_until(at, clock):
        def progress(now, done, line):
            clock.now += 10.0
            if now.step == at:
                raise Killed

        return run(start(target), features, tmp_path, Settings(steps=7, save_every=25), progress=progress, clock=clock)

    with pytest.raises(Killed):
        run_until(6, Clock())
    assert steps(tmp_path) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(Killed):
        run_until(5, Clock())
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    assert run_until(None, Clock()).step == 7
    assert steps(tmp_path) == [1, 2, 3, 4, 5, 6, 7]


def test_a_kill_while_a_batch_is_made_loses_nothing_that_was_saved(target, features, tmp_path):
    whole, other = start(target), start(target)
    run(whole, features, tmp_path / "whole")
    asked = []

    def batch_of(group):
        asked.append(group)
        if len(asked) == 4:
            raise Killed
        return features(group, ())

    with pytest.raises(Killed):
        fit(start(target), GROUPS, batch_of, Objective(), STEPS, tmp_path / "killed")
    done = []
    run(other, features, tmp_path / "killed", progress=lambda now, share, line: done.append(now.step))
    assert done == [4, 5, 6, 7]
    assert all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(whole).items())


def test_a_line_of_the_log_cut_by_the_kill_is_dropped(target, features, tmp_path):
    with pytest.raises(Killed):
        run(start(target), features, tmp_path, progress=killing(4))
    with (tmp_path / LOG).open("a") as file:
        file.write('{"step": 5, "sec')
    run(start(target), features, tmp_path)
    assert steps(tmp_path) == [1, 2, 3, 4, 5, 6, 7]


def test_every_epoch_sees_every_group_once_in_an_order_of_its_own(target, features, tmp_path):
    seen = []

    def batch_of(group):
        seen.append(group)
        return features(group, ())

    fit(start(target), GROUPS, batch_of, Objective(), replace(STEPS, steps=12), tmp_path)
    epochs = [seen[at:at + 3] for at in range(0, 12, 3)]
    assert all(sorted(epoch) == GROUPS for epoch in epochs)
    assert len(set(map(tuple, epochs))) > 1


def test_a_finished_fit_is_left_as_it_is(target, features, tmp_path):
    done = start(target)
    run(done, features, tmp_path, judge=lambda: {"looked": 1})
    before, other = (tmp_path / LOG).read_bytes(), start(target)
    assert run(other, features, tmp_path, judge=lambda: {"looked": 2}).step == 7
    assert (tmp_path / LOG).read_bytes() == before
    assert all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(done).items())


def test_a_kill_while_the_state_is_written_leaves_the_one_before(target, features, tmp_path, monkeypatch):
    saved = []

    def save(tensors, path, about):
        saved.append(path)
        if len(saved) == 4:
            path.write_bytes(b"half of it")
            raise Killed
        save_file(tensors, path, about)

    whole, other, done = start(target), start(target), []
    run(whole, features, tmp_path / "whole")
    monkeypatch.setattr("safetensors.torch.save_file", save)
    with pytest.raises(Killed):
        run(start(target), features, tmp_path / "killed")
    run(other, features, tmp_path / "killed", progress=lambda now, share, line: done.append(now.step))
    assert done == [4, 5, 6, 7]
    assert all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(whole).items())


@pytest.mark.parametrize("kept", [0, 7, 500, -1])
def test_a_truncated_state_is_refused_in_one_sentence(target, features, tmp_path, kept):
    run(start(target), features, tmp_path)
    path = tmp_path / STATE
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(Refusal, match=r"^\S+fit\.safetensors is damaged or cut short: delete it, and"):
        run(start(target), features, tmp_path)


def test_the_state_of_another_shape_is_refused(target, features, tmp_path):
    run(start(target), features, tmp_path)
    with pytest.raises(Refusal, match="belongs to a drafter of another shape"):
        run(start(target, "early-exit"), features, tmp_path)
    with pytest.raises(Refusal, match="belongs to a drafter of another shape"):
        run(DraftLMNet(target, IDS, (0, 1, 3)), features, tmp_path)


@pytest.mark.parametrize("other", [{"rate": 0.02}, {"seed": 1}, {"clip": 2.0}, {"optimiser": "muon"}],
                         ids=lambda other: next(iter(other)))
def test_a_fit_with_other_settings_is_refused(target, features, tmp_path, other):
    run(start(target), features, tmp_path)
    with pytest.raises(Refusal, match="was begun with other settings"):
        run(start(target), features, tmp_path, replace(STEPS, **other))


def test_a_fit_that_was_begun_before_there_was_a_choice_of_optimiser_goes_on_with_adamw(target, features, tmp_path):
    with pytest.raises(Killed):
        run(start(target), features, tmp_path, progress=killing(4))
    with safe_open(tmp_path / STATE, "pt") as file:
        about, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}     # noqa: SIM118
    settings = json.loads(about["settings"])
    assert settings.pop("optimiser") == "adamw"
    save_file(tensors, tmp_path / STATE, about | {"settings": json.dumps(settings)})
    assert run(start(target), features, tmp_path).step == 7


def test_a_fit_may_be_given_more_steps(target, features, tmp_path):
    assert run(start(target), features, tmp_path).step == 7
    assert run(start(target), features, tmp_path, replace(STEPS, steps=9)).step == 9
    assert steps(tmp_path) == list(range(1, 10))


def test_nothing_to_train_on_is_refused(target, features, tmp_path):
    with pytest.raises(Refusal, match="nothing to train on"):
        run(start(target), features, tmp_path, groups=[])


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
    keep_log(tmp_path, shelf)
    first = (shelf / KEPT_LOG).read_bytes()
    keep_log(tmp_path, shelf)
    assert read_log(shelf / KEPT_LOG) == read_log(tmp_path / LOG) == lines
    assert (shelf / KEPT_LOG).read_bytes() == first
