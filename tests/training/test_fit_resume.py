"""A fit that was killed goes on as if nothing had happened, or says in one sentence why it cannot."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specdec_lib.training.fit import (
    LOG,
    STATE,
    Settings,
    fit,
)
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.types import Refusal
from tests.training.fitting import (  # noqa: F401
    GROUPS,
    STEPS,
    Killed,
    features_fixture,
    killing,
    log,
    run,
    start,
    steps,
    target_fixture,
)
from tests.training.lessons import IDS


def weights(drafter) -> dict:
    return {name: parameter.detach().clone() for name, parameter in drafter.named_parameters()}


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


def test_a_seed_of_many_digits_has_seeds_for_all_steps(target, features, tmp_path):
    assert run(start(target), features, tmp_path, replace(STEPS, seed=20260722123456)).step == 7


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


def test_a_kill_in_the_last_measurement_leaves_a_fit_that_makes_it(target, features, tmp_path):
    def killed():
        if steps(tmp_path)[-1:] == [7]:
            raise Killed
        return {"held_out": 1}

    with pytest.raises(Killed):
        run(start(target), features, tmp_path, judge=killed)
    assert run(start(target), features, tmp_path, judge=lambda: {"held_out": 2}).step == 7
    last = log(tmp_path)[-1]
    assert (last["step"], last.get("held_out")) == (7, 2)


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


def test_a_state_with_a_flipped_byte_is_refused(target, features, tmp_path):
    run(start(target), features, tmp_path)
    content = bytearray((tmp_path / STATE).read_bytes())
    content[-9] ^= 64
    (tmp_path / STATE).write_bytes(content)
    with pytest.raises(Refusal, match=r"fit\.safetensors is damaged"):
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
