"""`specdec train digits` trains four models, resumes with the same weights, and stores what it measured."""

from itertools import count

import pytest
import torch

from specdec_lib.checkpoints.checkpoint_files import load_checkpoint
from specdec_lib.commands.train import train_by_names
from specdec_lib.continuous import patch_model
from specdec_lib.continuous.densities import HALF_LOG_TAU
from specdec_lib.continuous.digits import load_digits
from specdec_lib.continuous.heads import DiffusionHead, MixtureHead
from specdec_lib.continuous.patch_model import SIZES, load_model
from specdec_lib.continuous.transformer import Size
from specdec_lib.training.fit import LOG
from specdec_lib.training.train_digits import DigitSettings, held_out_loss, train_digits
from specdec_lib.types import Refusal

ASKED = DigitSettings(minutes=6, batch=16)


def ticks(stop: int | None = None):
    """A clock on which every look takes ten seconds, interrupted at one of them."""
    looks = count()

    def clock() -> float:
        now = next(looks)
        if now == stop:
            raise KeyboardInterrupt
        return 10.0 * now
    return clock


@pytest.fixture(scope="module")
def tiny():
    with pytest.MonkeyPatch.context() as patch:
        for name in SIZES:
            patch.setitem(patch_model.SIZES, name, Size(8, 1, 2, 8, 1))
        yield


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    return out, train_digits(ASKED, out, {}, clock=ticks())


def test_all_four_are_stored_and_the_card_holds_their_held_out_losses(trained):
    out, done = trained
    stored = load_checkpoint(out, "digits")
    assert set(stored.card["measured"]["held-out loss"]) == set(SIZES)
    held = load_digits().part(True)
    for name, told in stored.card["measured"]["held-out loss"].items():
        assert held_out_loss(load_model(stored, name), held) == pytest.approx(told, abs=1e-3)
    assert stored.card["made"]["steps"] == done.card["made"]["steps"]
    assert all(steps >= 5 for steps in stored.card["made"]["steps"].values())


def test_a_killed_training_ends_with_the_same_weights(tiny, trained, tmp_path):
    for stop in (6, 9, 14):
        with pytest.raises(KeyboardInterrupt):
            train_digits(ASKED, tmp_path, {}, clock=ticks(stop))
    assert not (tmp_path / "digits").exists()
    again = train_digits(ASKED, tmp_path, {}, clock=ticks())
    assert all(torch.equal(again.state[name], tensor) for name, tensor in trained[1].state.items())


def test_a_finished_training_takes_no_more_steps(tiny, trained):
    out, done = trained
    before = {path: path.read_text() for path in out.rglob(LOG)}
    again = train_digits(ASKED, out, {}, clock=ticks())
    assert len(before) == 4
    assert {path: path.read_text() for path in out.rglob(LOG)} == before
    assert again.card["sha256"] == done.card["sha256"]


def test_training_lowers_the_loss(tiny, trained):
    held = load_digits().part(True)
    for name in SIZES:
        assert held_out_loss(load_model(trained[1], name), held, 1) < held_out_loss(
            patch_model.PatchModel(name).eval(), held, 1)


def test_a_checkpoint_without_a_model_is_refused(trained):
    stored = load_checkpoint(trained[0], "digits")
    lacking = type(stored)(stored.name, {}, stored.meta, stored.card)
    with pytest.raises(Refusal, match="specdec train digits"):
        load_model(lacking, "mixture.target")
    with pytest.raises(Refusal, match="mixture and diffusion"):
        patch_model.load_pair("flow", trained[0])


@pytest.mark.parametrize(("wrong", "sentence"), [
    ({"target": "other/model"}, "leave out --target, which shape"),
    ({"loss": "tv"}, "leave out --loss, which shape"),
    ({"lengths": {"longest": 3}}, "leave out --longest, which shape"),
    ({"minutes": -1.0}, "minutes and rate are above 0")])
def test_options_of_texts_are_refused(wrong, sentence, tmp_path):
    usual = {"target": "smollm2-135m", "device": "auto", "dtype": "auto", "threads": None, "minutes": 1.0,
             "prompts": (), "data": (), "forbid": (), "out": tmp_path, "loss": None, "depths": None, "cache": 10e9,
             "seed": 0, "say": lambda line: None, "progress": lambda *_: None}
    with pytest.raises(Refusal, match=sentence):
        train_by_names(["digits"], **{**usual, **wrong})
    assert not list(tmp_path.iterdir())


@torch.inference_mode()
def test_a_step_is_that_of_the_clean_patch_its_velocity_stands_for_and_losses_are_in_nats():
    torch.manual_seed(0)
    head, (clean, noise) = DiffusionHead(Size(16, 1, 2, 16, 1), 3), torch.randn(2, 5, 4)
    for step, (keep, before) in enumerate(zip(head.schedule.keep, head.schedule.keep_before, strict=True)):
        x, velocity = (keep.sqrt() * one + sign * (1 - keep).sqrt() * other
                       for one, sign, other in ((clean, 1, noise), (noise, -1, clean)))
        torch.testing.assert_close(head.mean(x, velocity, step), head.posterior(x, clean, step))
        torch.testing.assert_close(head.posterior(keep.sqrt() * clean, clean, step), before.sqrt() * clean)
        slope, far = (1 - head.schedule.beta[step]).sqrt() * (1 - before) / (1 - keep), 1 - before
        spread = far - slope ** 2 * (1 - keep)     # what the true step adds, so that the variance becomes 1 - before
        bound = head.bound(x, clean, velocity, torch.zeros(5, 4), torch.tensor(step))
        torch.testing.assert_close(bound, (spread / 2 + HALF_LOG_TAU).expand(5, 4))
    torch.nn.init.zeros_(head.leave.weight)
    torch.nn.init.zeros_(head.leave.bias)          # each log sigma is then half of log beta, less 0.3
    path, hidden = head.density(torch.randn(5, 16), torch.randn(5, 4, 4)).path, torch.randn(5, 16)
    torch.testing.assert_close(path, (4 * (head.schedule.beta[1:].log() / 2 - 0.3).sum()).expand(5))
    head = MixtureHead(Size(16, 1, 2))
    assert head.loss(hidden, clean, torch.Generator()) == -head.density(hidden, noise).log_density(clean).mean()
