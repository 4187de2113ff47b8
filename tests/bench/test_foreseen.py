"""What a predictor foresees along a recording is what it would have said in the loop, and the toy has what it needs."""

import pytest
import torch

from specdec_lib.bench import foreseen
from specdec_lib.bench.draft_length import Course
from specdec_lib.cost import CostCurve
from specdec_lib.models.heads.length import LengthPredictor
from specdec_lib.training.examples import Example
from specdec_lib.training.features import Features
from specdec_lib.training.length import Length
from specdec_lib.training.length_labels import UNKNOWN, places, ready
from specdec_lib.types import Refusal


@pytest.fixture(scope="module")
def toy():
    torch.set_num_threads(1)
    return foreseen.toy(longest=3, steps=5, answers=40, texts=2, tokens=10)


def test_the_numbers_of_one_forward_are_those_the_policy_asks_for_place_by_place(toy):
    state = Length(toy.target.weights.embedding, toy.target.shape.eps, 8, seed=2).state("eagle")
    tape = toy.tapes["toy 1"]
    numbers, predictor = foreseen.foreseen(toy.target, state, tape), LengthPredictor(state, "eagle", toy.target.fresh())
    places = [tape.tokens[:length] for length in range(tape.prompt, len(tape.tokens))]
    assert list(numbers) == places and len(places) == 10
    for tokens in places:
        assert numbers[tokens] == pytest.approx(predictor(tokens), abs=1e-4)


def test_recorded_streaks_of_the_toy_are_the_labels_that_its_places_have(toy):
    course = Course(toy.tapes, "eagle", 3, CostCurve((1, 16), (64,), ((1.0, 2.0),)), .1)
    drafter = ready("eagle", toy.drafter, toy.target)
    levels = sorted({toy.target.layers, *drafter.levels})
    for name, tape in toy.tapes.items():
        data = [Example(tape.tokens[:tape.prompt], tape.output)]
        found = places(toy.target, Features(toy.target, data, levels, None)((0,), levels), {"eagle": drafter}, 3)
        pairs = list(zip(found.labels["eagle"].tolist(), course.right[name], strict=True))
        assert all(label == right for label, right in pairs[:6] if label != UNKNOWN) and len(pairs) == 10


def test_the_toy_is_the_same_each_time_and_its_predictor_is_measured_each_epoch(toy):
    again = foreseen.toy(longest=3, steps=5, answers=40, texts=2, tokens=10)
    assert torch.equal(again.train.labels["eagle"], toy.train.labels["eagle"])
    assert {name: tape.tokens for name, tape in again.tapes.items()} == {n: t.tokens for n, t in toy.tapes.items()}
    one, other = (foreseen.fitted_toy(world, longest=3, epochs=2) for world in (toy, again))
    assert [line["epoch"] for line in one.lines] == [1, 2]
    assert all(torch.equal(tensor, other.state[name]) for name, tensor in one.state.items())


def test_tensors_of_another_drafter_are_refused(toy):
    state = Length(toy.target.weights.embedding, toy.target.shape.eps, 8).state("eagle")
    with pytest.raises(Refusal, match="no length predictor was trained for early-exit; there are: eagle"):
        foreseen.foreseen(toy.target, state, toy.tapes["toy 1"], "early-exit")
