"""H-RAD in training: figures and weights by hand, what it learns, how it resumes, and the same class in the loop."""

import random

import pytest
import torch

from specdec_lib.heads.hrad import CLASSES, ClassPredictor, last_levels
from specdec_lib.loop import begin
from specdec_lib.training.data.pending_drafts import PendingDrafts, classes_of
from specdec_lib.training.fit_hrad import HradSettings, fit_hrad
from specdec_lib.training.fit_length import epoch_log
from specdec_lib.training.nets.hrad import HradNet, class_figures, class_weights, classify, paired_counts
from specdec_lib.types import Refusal
from tests.training.tiny import tiny_target

EMBEDDING = torch.randn(20, 6, generator=torch.Generator().manual_seed(1))
ASKED = HradSettings(longest=3, layers=2, epochs=12, batch=32, rate=5e-3, hidden=16, narrow=8)


def told_by_the_states(count, seed=0):
    """Drafts whose fate is read off the states of the first of two layers."""
    states = torch.randn(count, 2, 6, generator=torch.Generator().manual_seed(seed))
    accepted = (1.5 + 1.5 * states[:, 0, 0] + (states[:, 0, 1] > 0)).round().clamp(0, 3).to(torch.int8)
    return PendingDrafts(torch.arange(count) % 20, states.half(), accepted)


def net(seed=0, dropout=0.0):
    return HradNet(EMBEDDING, 1e-5, 2, 16, 8, dropout, seed)


def test_classes_are_none_some_and_all_of_a_draft():
    assert classes_of(torch.tensor([0, 1, 2, 3], dtype=torch.int8), 3).tolist() == [0, 1, 1, 2]
    assert classes_of(torch.tensor([0, 1], dtype=torch.int8), 1).tolist() == [0, 2]


def test_figures_by_hand():
    labels, said = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 0, 2, 1, 0, 0])
    told = class_figures(said, labels)
    assert (told["positions"], told["accuracy"]) == (6, .5)
    assert told["recall"] == {"none": .6667, "some": .5, "all": 0.0}
    assert told["predicted as none, some, all"] == {"none": [2, 0, 1], "some": [1, 1, 0], "all": [1, 0, 0]}
    assert class_figures(said[:3], labels[:3])["recall"]["all"] is None
    other = torch.tensor([0, 1, 0, 0, 1, 2])
    assert paired_counts(said, other, labels) == {"it alone is right": 2, "the other alone is right": 3}


def test_weights_of_classes_by_hand():
    labels = torch.tensor([0] * 6 + [1] * 3 + [2])
    assert class_weights(labels, 0.0).tolist() == [1, 1, 1]
    assert class_weights(labels, 1.0).tolist() == pytest.approx([10 / 18, 10 / 9, 10 / 3])
    half = class_weights(labels, .5)
    assert float(half[labels].mean()) == pytest.approx(1)
    assert float(half[2] / half[0]) == pytest.approx(6 ** .5)
    assert class_weights(torch.tensor([0, 0, 1]), 1.0)[2] == 0


def test_it_learns_from_the_states_and_beats_the_majority_on_unseen_drafts(tmp_path):
    train, held, one = told_by_the_states(1500), told_by_the_states(400, seed=9), net(dropout=.2)
    fit_hrad(one, train, held, ASKED, tmp_path)
    labels = classes_of(held.accepted, 3)
    most = float(labels.bincount().max()) / len(labels)
    *_, last = [line["held_out"] for line in epoch_log(tmp_path)]
    assert last["accuracy"] > most + .2
    assert all(share > .5 for share in last["recall"].values())
    assert class_figures(classify(one, held), labels) == last


def test_a_balanced_loss_finds_more_of_a_rare_class(tmp_path):
    dice, found = torch.Generator().manual_seed(3), {}
    accepted = torch.where(torch.rand(900, generator=dice) < .1, 3, 0).to(torch.int8)      # nothing tells them apart
    train = PendingDrafts(torch.zeros(900, dtype=torch.long), torch.zeros(900, 2, 6).half(), accepted)
    for balance in (0.0, 1.0):
        one = net()
        fit_hrad(one, train, train, HradSettings(**{**vars(ASKED), "balance": balance, "epochs": 3}),
                 tmp_path / str(balance))
        found[balance] = one(train.tokens[:1], train.states[:1]).softmax(-1)[0]
    assert found[0.0][2] < .3
    assert found[1.0][2] > .35


class Killed(Exception):
    """Stands for a kill."""


def test_a_killed_fit_resumes_to_the_same_end_dropout_included(tmp_path):
    train, held = told_by_the_states(300), told_by_the_states(100, seed=9)
    asked = HradSettings(**{**vars(ASKED), "epochs": 4})
    whole, first, second = (net(dropout=.3) for _ in range(3))
    fit_hrad(whole, train, held, asked, tmp_path / "whole")

    def killed(step, steps, line):
        if line["epoch"] == 3:
            raise Killed

    ticks = iter(range(0, 10 ** 9, 31))            # seconds: every step is saved
    with pytest.raises(Killed):
        fit_hrad(first, train, held, asked, tmp_path / "cut", killed, lambda: next(ticks))
    fit_hrad(second, train, held, asked, tmp_path / "cut")
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters(), strict=True))
    undropped = net()
    fit_hrad(undropped, train, held, asked, tmp_path / "undropped")
    assert not all(torch.equal(a, b) for a, b in zip(whole.parameters(), undropped.parameters(), strict=True))


def test_the_last_levels_are_those_of_the_last_layers():
    assert last_levels(30, 4) == (27, 28, 29, 30)
    assert last_levels(2, 4) == (1, 2)


def test_what_was_trained_gives_the_same_class_in_the_loop():
    target, dice = tiny_target(), random.Random(4)
    levels = last_levels(target.layers, 3)
    one = HradNet(target.weights.embedding, target.shape.eps, len(levels), 8, 5, seed=3)
    predictor, seen = ClassPredictor(one.state(), levels, target), set()
    other = HradNet(target.weights.embedding, target.shape.eps, len(levels), 8, 5, seed=4)
    other.take(one.state())
    for _ in range(20):
        tokens = tuple(dice.randrange(40) for _ in range(6))
        lm = target.fresh()
        lm.tap(levels)
        lm.prefill(tokens[:-1])
        scores = other(torch.tensor([tokens[-1]]), lm.features(tokens)[len(tokens) - 2][None])
        seen.add(predictor(begin(tokens, 9)))
        assert predictor(begin(tokens, 9)) == int(scores.argmax())
    assert seen <= set(range(len(CLASSES)))


@pytest.mark.parametrize(("wrong", "sentence"), [
    ({"longest": 0}, "longest"), ({"rate": 0.0}, "rate"), ({"positions": 0}, "positions"), ({"layers": 0}, "layers"),
    ({"dropout": 1.0}, "dropout"), ({"balance": 1.5}, "balance")], ids=str)
def test_impossible_settings_are_refused(wrong, sentence):
    with pytest.raises(Refusal, match=sentence):
        HradSettings(**wrong)


def test_without_drafts_to_learn_from_it_is_refused(tmp_path):
    some, none = told_by_the_states(20), told_by_the_states(0)
    with pytest.raises(Refusal, match="0 pending drafts to learn from and 20 to measure with"):
        fit_hrad(net(), none, some, ASKED, tmp_path)
