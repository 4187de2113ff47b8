"""What a predictor foresees along a recording is what it would have said in the loop, and the toy has what it needs."""

import pytest
import torch

from specdec_lib.analysis.length_replay import LengthReplay
from specdec_lib.cost.curves import CostCurve
from specdec_lib.heads.length import LengthPredictor
from specdec_lib.recordings import length_predictions
from specdec_lib.toys import length
from specdec_lib.training.data.examples import Example
from specdec_lib.training.data.features import Features
from specdec_lib.training.data.length_labels import UNKNOWN, labelled_positions, ready_drafter
from specdec_lib.training.nets.length import LengthNet
from specdec_lib.types import Refusal


@pytest.fixture(scope="module")
def toy():
    torch.set_num_threads(1)
    return length.length_toy(longest=3, steps=5, answers=40, texts=2, tokens=10)


def test_the_numbers_of_one_forward_are_those_the_policy_asks_for_place_by_place(toy):
    state = LengthNet(toy.target.weights.embedding, toy.target.shape.eps, 8, seed=2).state("eagle")
    recording = toy.recordings["toy 1"]
    numbers = length_predictions.predict_lengths(toy.target, state, recording)
    predictor = LengthPredictor(state, "eagle", toy.target.fresh())
    places = [recording.tokens[:length] for length in range(recording.prompt, len(recording.tokens))]
    assert list(numbers) == places
    assert len(places) == 10
    for tokens in places:
        assert numbers[tokens] == pytest.approx(predictor(tokens), abs=1e-4)


def test_recorded_streaks_of_the_toy_are_the_labels_that_its_places_have(toy):
    course = LengthReplay(toy.recordings, "eagle", 3, CostCurve((1, 16), (64,), ((1.0, 2.0),)), .1)
    drafter = ready_drafter("eagle", toy.drafter, toy.target)
    levels = sorted({toy.target.layers, *drafter.levels})
    for name, recording in toy.recordings.items():
        data = [Example(recording.tokens[:recording.prompt], recording.output)]
        found = labelled_positions(toy.target, Features(toy.target, data, levels, None)((0,), levels),
                                   {"eagle": drafter}, 3)
        pairs = list(zip(found.labels["eagle"].tolist(), course.accepted[name], strict=True))
        assert all(label == right for label, right in pairs[:6] if label != UNKNOWN)
        assert len(pairs) == 10


def test_the_toy_is_the_same_each_time_and_its_predictor_is_measured_each_epoch(toy):
    again = length.length_toy(longest=3, steps=5, answers=40, texts=2, tokens=10)
    assert torch.equal(again.train.labels["eagle"], toy.train.labels["eagle"])
    assert again.recordings.keys() == toy.recordings.keys()
    assert all(recording.tokens == toy.recordings[name].tokens for name, recording in again.recordings.items())
    one, other = (length.fit_toy_predictor(world, longest=3, epochs=2) for world in (toy, again))
    assert [line["epoch"] for line in one.lines] == [1, 2]
    assert all(torch.equal(tensor, other.state[name]) for name, tensor in one.state.items())


def test_tensors_of_another_drafter_are_refused(toy):
    state = LengthNet(toy.target.weights.embedding, toy.target.shape.eps, 8).state("eagle")
    with pytest.raises(Refusal, match="no length predictor was trained for early-exit; there are: eagle"):
        length_predictions.predict_lengths(toy.target, state, toy.recordings["toy 1"], "early-exit")
