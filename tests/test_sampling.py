"""Logits to a law."""

import pytest
import torch

from specdec_lib.sampling import Sampling
from specdec_lib.types import Refusal, Scores

LOGITS = torch.log(torch.tensor([.1, .4, .2, .3]))


def test_temperature_zero_has_a_support_of_one():
    law = Sampling(0).law(LOGITS)
    assert law.ids.tolist() == [1] and law.chances.tolist() == [1.0]


def test_temperature_one_is_the_softmax():
    assert Sampling(1.0).law(LOGITS).chances.tolist() == pytest.approx([.1, .4, .2, .3], abs=1e-6)


def test_temperature_sharpens():
    assert Sampling(.5).law(LOGITS).chance(1) == pytest.approx(.16 / .30, abs=1e-6)


def test_top_k_keeps_the_k_best():
    law = Sampling(1.0, top_k=2).law(LOGITS)
    assert sorted(law.ids.tolist()) == [1, 3] and law.chance(3) == pytest.approx(3 / 7, abs=1e-6)


def test_top_p_keeps_the_token_that_crosses():
    law = Sampling(1.0, top_p=.5).law(LOGITS)
    assert law.ids.tolist() == [1, 3] and float(law.chances.sum()) == pytest.approx(1)


def test_a_smaller_head_keeps_its_tokens_names():
    law = Sampling(1.0, top_k=1).law(LOGITS, ids=torch.tensor([7, 8, 9, 10]))
    assert law.ids.tolist() == [8]


def test_scores_follow_the_sampling_they_are_given():
    scores = Scores(LOGITS[None])
    assert len(scores.law(0).ids) == 1 and len(scores.law(0, Sampling(0)).ids) == 1
    assert len(scores.law(0, Sampling(1.0)).ids) == 4


@pytest.mark.parametrize("values", [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.5}, {"top_k": -1}])
def test_impossible_settings_are_refused(values):
    with pytest.raises(Refusal):
        Sampling(**values)
