"""A forecast names the best token by probability and then by id, never the mask, and is damped where it is asked to."""

import math

import pytest
import torch

from specdec_lib.canvas.forecast import forecast

LOGITS = torch.log(torch.tensor([[[.2, .5, .3], [.4, .4, .2]]], dtype=torch.float64))


def test_statistics_are_those_of_the_softmax():
    [row] = forecast(LOGITS + 7, (3, 8), None)
    assert row.best == (1, 0)
    assert row.confidence == pytest.approx((.5, .4))
    assert row.margin == pytest.approx((.2, 0))
    assert row.entropy[0] == pytest.approx(-sum(p * math.log(p) for p in (.2, .5, .3)))
    assert row.confidence_of(8, 2) == pytest.approx(.2)
    assert row.alternatives(8, 3) == (0, 1, 2)
    assert row.alternatives(3, 2) == (1, 2)
    assert forecast(LOGITS.bfloat16(), (3, 8), None)[0].logp.dtype == torch.float32


def test_equal_tokens_go_to_the_lowest_id():
    [row] = forecast(torch.zeros(1, 1, 50), (0,), None)
    assert row.best == (0,)
    assert row.margin == (0.0,)


def test_the_mask_has_no_probability_and_the_others_share_it():
    [row] = forecast(LOGITS, (0, 1), 1)
    assert row.best == (2, 0)
    assert row.confidence == pytest.approx((.6, 2 / 3))
    assert row.confidence_of(0, 1) == 0
    assert row.alternatives(0, 3) == (2, 0)
    assert math.isfinite(row.entropy[0])


def test_columns_are_named_by_ids_and_unknown_tokens_have_no_probability():
    [row] = forecast(LOGITS, (0, 1), 12, torch.tensor([10, 12, 40]))
    assert row.best == (40, 10)
    assert row.confidence_of(0, 40) == pytest.approx(.6)
    assert row.confidence_of(0, 11) == 0
    assert row.distribution(0, 0.0).only == 40
    assert row.distribution(1, 1.0).probability(10) == pytest.approx(2 / 3)


@pytest.mark.parametrize("ids", [None, torch.tensor([4, 5, 6])])
def test_damping_subtracts_from_the_logit_whatever_its_sign(ids):
    tokens = [1] if ids is None else [5]
    for shift in (-9.0, 9.0):
        [row] = forecast(LOGITS + shift, (0, 1), None, ids)
        damped = row.damped(tokens, math.log(5))
        assert damped.confidence_of(0, tokens[0]) == pytest.approx(.1 / .6)
        assert damped.best[0] == (2 if ids is None else 6)
    assert row.damped((), 3.0) is row
