"""The ratio p/q and the residual."""

import pytest
import torch

from specdec_lib.how.rejection import acceptance
from specdec_lib.scores import Categorical

P = Categorical(torch.tensor([0, 1, 2]), torch.tensor([.3, .3, .4], dtype=torch.float64))
Q = Categorical(torch.tensor([0, 1, 2]), torch.tensor([.6, .3, .1], dtype=torch.float64))


def test_a_token_is_accepted_with_p_over_q_and_never_more_than_surely():
    assert acceptance(P, Q, 0) == pytest.approx(.5)
    assert acceptance(P, Q, 2) == 1


def test_a_deterministic_proposal_is_accepted_with_its_probability_under_p():
    assert acceptance(P, None, 2) == pytest.approx(.4)


def test_the_residual_is_what_the_draft_did_not_offer():
    assert P.residual(Q, 0).probs.tolist() == pytest.approx([0, 0, 1])


def test_after_a_deterministic_proposal_the_residual_is_p_without_it():
    assert P.residual(None, 2).probs.tolist() == pytest.approx([.5, .5, 0])


def test_distributions_on_different_supports_meet_on_that_of_p():
    small = Categorical(torch.tensor([2, 0]), torch.tensor([.25, .75], dtype=torch.float64))
    assert small.onto(P.ids).tolist() == [.75, 0, .25]
    assert P.residual(small, 0).probs.tolist() == pytest.approx([0, .3 / .45, .15 / .45])


def test_equal_distributions_reject_nothing_and_survive_rounding():
    assert acceptance(P, P, 1) == 1
    assert P.residual(P, 1).probs.tolist() == P.probs.tolist()
