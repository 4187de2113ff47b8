"""Distributions as verification uses them, and statistics that cost no second look at the logits."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from specdec_lib.dice import Dice
from specdec_lib.scores import SMALL, Categorical, RowStats, Scores

WEIGHTS = st.lists(st.floats(0.01, 10), min_size=2, max_size=6)


def categorical(weights, start=0) -> Categorical:
    probs = torch.tensor(weights, dtype=torch.float64)
    return Categorical(torch.arange(start, start + len(weights)), probs / probs.sum())


@pytest.mark.parametrize("size", [2, SMALL, SMALL + 1])
def test_a_probability_is_that_of_its_token_in_supports_of_any_size_and_zero_outside(size):
    probs = torch.rand(size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
    dist = Categorical(torch.arange(size).flip(0) * 3, probs / probs.sum())
    for token, prob in zip(dist.ids.tolist(), dist.probs.tolist(), strict=True):
        assert dist.probability(token) == prob
        assert dist.probability(token + 1) == 0.0


@settings(max_examples=100, deadline=None, derandomize=True)
@given(WEIGHTS, WEIGHTS, st.integers(0, 3))
def test_accepted_and_residual_parts_add_up_to_the_target(p_weights, q_weights, start):
    p, q = categorical(p_weights), categorical(q_weights, start)
    offered = q.onto(p.ids)
    kept = torch.minimum(p.probs, offered)
    rest = p.residual(q, int(q.ids[0]))
    left = 1 - float(kept.sum())
    assert float(rest.probs.sum()) == pytest.approx(1)
    if left > 1e-9:
        assert (kept + left * rest.probs).tolist() == pytest.approx(p.probs.tolist(), abs=1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(WEIGHTS, st.data())
def test_after_a_deterministic_proposal_the_residual_is_the_rest_of_the_target(weights, data):
    p = categorical(weights)
    token = data.draw(st.integers(0, len(weights) - 1))
    rest = p.residual(None, token)
    assert rest.probability(token) == 0
    others = [i for i in range(len(weights)) if i != token]
    assert [rest.probability(i) for i in others] == pytest.approx(
        [p.probability(i) / (1 - p.probability(token)) for i in others])


def test_a_point_mass_draws_without_random_numbers_and_leaves_no_residual():
    point = Categorical.point_mass(7)
    assert point.draw(Dice(0)) == 7
    assert point.only == 7
    assert point.residual(None, 3) is point


def test_statistics_of_a_token_come_from_what_was_moved_to_the_host():
    class Untouchable:
        """Logits on a device: whoever asks for one of them pays a transfer."""

        device = torch.device("cuda")

        def __getitem__(self, row):
            raise AssertionError("a transfer")

    moved = RowStats(torch.tensor([[4, 2, 9]]), torch.tensor([[2.0, 1.0, 0.5]]), (0,), (2.5,), (1.1,))
    seen = Scores(Untouchable(), row_stats=moved).stats(0, 2)
    assert seen.prob == pytest.approx(math.exp(1.0 - 2.5))
    assert (seen.first, seen.second, seen.entropy) == pytest.approx((math.exp(-0.5), math.exp(-1.5), 1.1))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.floats(-5, 5), min_size=3, max_size=8), st.data())
def test_moved_and_computed_statistics_agree(row, data):
    logits = torch.tensor([row], dtype=torch.float64)
    token = data.draw(st.integers(0, len(row) - 1))
    computed = Scores(logits).stats(0, token)
    moved = Scores(logits, row_stats=Scores(logits).row_stats((0,), len(row))).stats(0, token)
    assert tuple(moved) == pytest.approx(tuple(computed), abs=1e-9)


def test_probabilities_of_ids_on_another_device_are_those_of_the_same_tokens():
    q = Categorical(torch.tensor([3, 1]), torch.tensor([.75, .25]))
    assert q.onto(torch.tensor([0, 1, 2, 3])).tolist() == [0, .25, 0, .75]
    with FakeTensorMode():                         # an n-gram model's beside a target's on a GPU
        q = Categorical(torch.tensor([3, 1]), torch.tensor([.75, .25]))
        assert q.onto(torch.arange(4, device="cuda")).device == q.probs.device
