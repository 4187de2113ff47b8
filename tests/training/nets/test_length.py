"""A length predictor in training: its loss and figures by hand, and that it learns from the hidden state."""

import pytest
import torch

from specdec_lib.heads.length import LengthPredictor
from specdec_lib.training.data.length_labels import UNKNOWN, LengthLabels
from specdec_lib.training.fit_length import LengthSettings, epoch_log, fit_length
from specdec_lib.training.nets.length import LengthNet, known_labels, length_figures, one_sided, predict
from specdec_lib.types import Refusal
from tests.training.tiny import tiny_target

EMBEDDING = torch.randn(20, 6, generator=torch.Generator().manual_seed(1))


def told_by_the_state(count, seed=0):
    """Places whose label is read off the state, but for the last tenth, whose label nobody knows."""
    states = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    label = (2.5 + 2 * states[:, 0] + 2 * (states[:, 1] > 0)).round().clamp(0, 6).to(torch.int8)
    label[-count // 10:] = UNKNOWN
    return LengthLabels(torch.arange(count) % 20, states.half(), {"toy": label})


def model(seed=0):
    return LengthNet(EMBEDDING, 1e-5, hidden=16, seed=seed)


def test_a_prediction_that_is_too_short_has_the_requested_weight():
    numbers, labels = torch.tensor([1.0, 4.0, 2.0]), torch.tensor([3.0, 3.0, 2.0])
    assert float(one_sided(numbers, labels, 3.0)) == pytest.approx((3 * 2 + 1 + 0) / 3)
    assert float(one_sided(numbers, labels, 1.0)) == pytest.approx((2 + 1) / 3)


def test_figures_by_hand():
    told = length_figures(torch.tensor([-1.0, 1.4, 2.6, 9.0]), torch.tensor([0, 2, 2, 4]), 5, 3.0)
    assert told["positions"] == 4
    assert told["mean_label"] == 2
    assert told["mean_length"] == 2.25
    assert told["mae"] == .75
    assert told["mae_of_best_constant"] == 1.0
    assert told["loss"] == (3 + 1 + 1) / 4
    assert told["loss_of_best_constant"] == 2.0
    assert told["too_short"] == .25
    assert told["too_long"] == .5
    assert told["kept"] == (0 + 1 + 2 + 4) / 4
    assert told["wasted"] == 2 / 4
    assert told["correlation"] == pytest.approx(2.5 / (2 * 3.6875) ** .5, abs=1e-4)


def test_the_correlation_is_one_for_the_labels_and_unknown_for_a_constant():
    labels = torch.tensor([0, 3, 1, 2])
    assert length_figures(labels.float(), labels, 5, 3.0)["correlation"] == pytest.approx(1, abs=1e-4)
    assert length_figures(torch.full((4,), 2.0), labels, 5, 3.0)["correlation"] is None


def test_it_learns_from_the_state_and_beats_every_constant_on_unseen_positions(tmp_path):
    train, held, one = told_by_the_state(1500), told_by_the_state(400, seed=9), model()
    asked = LengthSettings(longest=6, epochs=12, batch=32, rate=5e-3, hidden=16)
    fit_length(one, "toy", train, held, asked, tmp_path)
    first, *_, last = [line["held_out"] for line in epoch_log(tmp_path)]
    assert last["mae"] < .5 * last["mae_of_best_constant"]
    assert last["loss"] < .5 * last["loss_of_best_constant"]
    assert last["correlation"] > .9
    assert last["positions"] == 360
    assert last["mae"] < first["mae"]
    rows = known_labels(held.labels["toy"])
    assert length_figures(predict(one, held, rows), held.labels["toy"][rows], 6, 3.0) == last


def test_a_larger_weight_makes_drafts_longer_and_seldom_too_short(tmp_path):
    train, held, told = told_by_the_state(600), told_by_the_state(200, seed=9), {}
    noisy = torch.randint(0, 7, (600,), generator=torch.Generator().manual_seed(0)).to(torch.int8)
    train = LengthLabels(train.tokens, train.states, {"toy": noisy})
    for weight in (1 / 3, 3.0):
        asked = LengthSettings(longest=6, epochs=4, batch=32, rate=5e-3, hidden=16, weight=weight)
        fit_length(model(), "toy", train, held, asked, tmp_path / str(weight))
        told[weight] = epoch_log(tmp_path / str(weight))[-1]["held_out"]
    assert told[3.0]["mean_length"] > told[1 / 3]["mean_length"] + 1
    assert told[3.0]["too_short"] < told[1 / 3]["too_short"]


class Killed(Exception):
    """Stands for a kill."""


def test_a_killed_fit_resumes_to_the_same_end(tmp_path):
    train, held = told_by_the_state(300), told_by_the_state(100, seed=9)
    asked = LengthSettings(longest=6, epochs=4, batch=32, hidden=16)
    whole, first, second = model(), model(), model()
    fit_length(whole, "toy", train, held, asked, tmp_path / "whole")

    def killed(step, steps, line):
        if line["epoch"] == 3:
            raise Killed

    ticks = iter(range(0, 10 ** 9, 31))            # seconds: every step is saved
    with pytest.raises(Killed):
        fit_length(first, "toy", train, held, asked, tmp_path / "cut", killed, lambda: next(ticks))
    assert not all(torch.equal(a, b) for a, b in zip(whole.parameters(), first.parameters(), strict=True))
    fit_length(second, "toy", train, held, asked, tmp_path / "cut")
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters(), strict=True))
    ends = [[(line["epoch"], line["held_out"]) for line in epoch_log(tmp_path / name)] for name in ("whole", "cut")]
    assert ends[0] == ends[1]
    assert len(ends[0]) == 4


def test_a_finished_fit_is_taken_as_it_is_and_a_damaged_one_is_refused(tmp_path):
    train, held, asked = told_by_the_state(200), told_by_the_state(50, 9), LengthSettings(longest=6, epochs=1,
                                                                                          hidden=16)
    one, other = model(), model(seed=5)
    fit_length(one, "toy", train, held, asked, tmp_path)
    fit_length(other, "toy", train, held, asked, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    path = tmp_path / "fit.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(Refusal, match="damaged or cut short"):
        fit_length(model(), "toy", train, held, asked, tmp_path)


def test_what_was_trained_predicts_the_same_in_the_loop():
    target = tiny_target()
    one = LengthNet(target.weights.embedding, target.shape.eps, hidden=8, seed=3)
    predictor = LengthPredictor(one.state("eagle"), "eagle", target)
    tokens = (5, 3, 8, 1, 9)
    target.prefill(tokens[:-1])
    state = target.features(tokens)[len(tokens) - 2]
    assert predictor(tokens) == pytest.approx(one(torch.tensor([9]), state).item(), abs=1e-5)
    other = LengthNet(target.weights.embedding, target.shape.eps, hidden=8, seed=4)
    other.take(one.state("eagle"), "eagle")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(("wrong", "sentence"), [
    ({"drafters": ("medusa",)}, "are for eagle, draft-lm, early-exit, got medusa"), ({"drafters": ()}, "got none"),
    ({"drafters": ("eagle", "eagle")}, "twice"), ({"longest": 0}, "longest"), ({"weight": 0.0}, "weight"),
    ({"rate": 0.0}, "rate"), ({"positions": 0}, "positions"), ({"epochs": 0}, "epochs")], ids=str)
def test_impossible_settings_are_refused(wrong, sentence):
    with pytest.raises(Refusal, match=sentence):
        LengthSettings(**wrong)


def test_positions_without_any_label_are_refused(tmp_path):
    some = told_by_the_state(50)
    none = LengthLabels(some.tokens, some.states, {"toy": torch.full((50,), UNKNOWN, dtype=torch.int8)})
    with pytest.raises(Refusal, match="0 positions to train a predictor for toy on and 45 to measure with"):
        fit_length(model(), "toy", none, some, LengthSettings(), tmp_path)
