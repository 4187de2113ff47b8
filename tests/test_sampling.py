"""From logits to a distribution."""

import pytest
import torch

from specdec_lib.sampling import Sampling
from specdec_lib.scores import Scores
from specdec_lib.types import Refusal

LOGITS = torch.log(torch.tensor([.1, .4, .2, .3]))


def test_temperature_zero_has_a_support_of_one():
    dist = Sampling(0).distribution(LOGITS)
    assert dist.ids.tolist() == [1]
    assert dist.probs.tolist() == [1.0]


def test_temperature_one_is_the_softmax():
    assert Sampling(1.0).distribution(LOGITS).probs.tolist() == pytest.approx([.1, .4, .2, .3], abs=1e-6)


def test_a_lower_temperature_sharpens():
    assert Sampling(.5).distribution(LOGITS).probability(1) == pytest.approx(.16 / .30, abs=1e-6)


def test_top_k_keeps_the_k_best():
    dist = Sampling(1.0, top_k=2).distribution(LOGITS)
    assert sorted(dist.ids.tolist()) == [1, 3]
    assert dist.probability(3) == pytest.approx(3 / 7, abs=1e-6)


def test_top_p_keeps_the_token_that_crosses():
    dist = Sampling(1.0, top_p=.5).distribution(LOGITS)
    assert dist.ids.tolist() == [1, 3]
    assert float(dist.probs.sum()) == pytest.approx(1)


def test_logits_that_are_no_numbers_still_give_a_token_for_the_loop_to_refuse():
    nothing = Sampling(1.0, 0, 0.9).distribution(torch.full((5,), float("nan")))
    assert len(nothing.ids) == 1


def test_a_smaller_head_keeps_its_token_ids():
    dist = Sampling(1.0, top_k=1).distribution(LOGITS, ids=torch.tensor([7, 8, 9, 10]))
    assert dist.ids.tolist() == [8]


def test_scores_use_the_given_sampling():
    scores = Scores(LOGITS[None])
    assert len(scores.distribution(0).ids) == 1
    assert len(scores.distribution(0, Sampling(0)).ids) == 1
    assert len(scores.distribution(0, Sampling(1.0)).ids) == 4


@pytest.mark.parametrize("values", [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.5}, {"top_k": -1}])
def test_impossible_settings_are_refused(values):
    with pytest.raises(Refusal):
        Sampling(**values)
