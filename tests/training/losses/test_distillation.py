"""Losses of a draft slot against numbers computed by hand, and properties of the weights of depths."""

import pytest
import torch

from specdec_lib.exact import every_outcome
from specdec_lib.how.rejection import acceptance
from specdec_lib.scores import Categorical
from specdec_lib.training.losses.distillation import (
    decay_weights,
    dpace_weights,
    expected_streak,
    mixed,
    soft_cross_entropy,
    streak_weights,
    total_variation,
)

P = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.6, 0.3]])
Q = torch.tensor([[0.25, 0.25, 0.5], [0.1, 0.6, 0.3]])


def test_cross_entropy_is_the_entropy_of_p_where_the_draft_is_p():
    entropy = -(P * P.log()).sum(-1)
    assert torch.allclose(soft_cross_entropy(P.log(), P), entropy)
    assert soft_cross_entropy(Q.log(), P)[0] > entropy[0]


def test_cross_entropy_of_a_one_hot_p_is_minus_the_log_probability_of_its_token():
    certain = torch.tensor([[0.0, 0.0, 1.0]])
    assert soft_cross_entropy(Q[:1].log(), certain).item() == pytest.approx(-torch.tensor(0.5).log().item())


@pytest.mark.parametrize("loss", [soft_cross_entropy, total_variation, mixed])
def test_adding_a_constant_to_the_logits_changes_no_loss(loss):
    assert torch.allclose(loss(Q.log() + 7, P), loss(Q.log(), P), atol=1e-6)


def test_total_variation_of_two_distributions_by_hand():
    assert total_variation(Q.log(), P).tolist() == pytest.approx([0.25, 0.0], abs=1e-6)
    assert torch.allclose(total_variation(Q.log(), P), 1 - torch.minimum(P, Q).sum(-1), atol=1e-6)


def test_total_variation_is_the_probability_that_the_drafted_token_is_rejected():
    dice = torch.Generator().manual_seed(0)
    for p, q in torch.rand(5, 2, 6, generator=dice).softmax(-1):
        dists = [Categorical(torch.arange(6), probs) for probs in (p, q)]

        def accepted(coins, p=dists[0], q=dists[1]):
            token = coins.choose(q)
            return coins.flip(acceptance(p, q, token))

        refused = every_outcome(accepted)[False]
        assert total_variation(q.log()[None], p[None]).item() == pytest.approx(refused, abs=1e-6)


def test_the_mixed_loss_lies_between_cross_entropy_and_the_l1_distance():
    l1 = (P - Q).abs().sum(-1)
    assert torch.allclose(mixed(Q.log(), P, 0.1), 0.1 * soft_cross_entropy(Q.log(), P) + 0.9 * l1, atol=1e-6)
    assert torch.allclose(mixed(Q.log(), P, 0.0), l1, atol=1e-6)
    assert torch.allclose(mixed(Q.log(), P, 1.0), soft_cross_entropy(Q.log(), P))


def test_far_from_p_total_variation_is_flat_and_cross_entropy_is_not():
    logits, p = torch.tensor([[30.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    slopes = []
    for loss in (total_variation, soft_cross_entropy):
        free = logits.clone().requires_grad_()
        loss(free, p).sum().backward()
        slopes.append(free.grad.abs().max().item())
    assert slopes[0] < 1e-9
    assert slopes[1] == pytest.approx(1.0)


def test_decay_weighs_every_depth_a_fifth_less_than_the_last():
    weights = decay_weights(torch.rand(3, 2))
    assert weights.tolist() == [pytest.approx([w, w]) for w in (1.0, 0.8, 0.64)]


def test_the_expected_streak_of_a_hand_made_draft():
    assert expected_streak(torch.tensor([[0.5], [0.5], [1.0]])).item() == 0.5 + 0.25 + 0.25


def test_streak_weights_are_the_gradient_of_the_expected_streak_in_log_probabilities():
    log_q = torch.rand(4, 5, generator=torch.Generator().manual_seed(1)).log().requires_grad_()
    expected_streak(log_q.exp()).sum().backward()
    assert torch.allclose(streak_weights(log_q.exp()), log_q.grad, atol=1e-6)


def test_weights_are_constants_for_the_gradient():
    probs = torch.rand(3, 2).requires_grad_()
    assert not streak_weights(probs).requires_grad
    assert not dpace_weights(probs).requires_grad


def test_smoothed_weights_without_smoothing_are_streak_weights():
    probs = torch.rand(4, 5, generator=torch.Generator().manual_seed(2))
    assert torch.equal(dpace_weights(probs, 0.0), streak_weights(probs))


def test_smoothed_weights_fully_smoothed_count_the_slots_that_follow():
    assert dpace_weights(torch.rand(3, 1), 1.0).flatten().tolist() == [3, 2, 1]


def test_smoothed_weights_do_not_vanish_behind_a_first_slot_that_is_always_wrong():
    probs = torch.tensor([[1e-8], [0.9], [0.9]])
    assert streak_weights(probs).max() < 1e-7
    assert dpace_weights(probs)[1:].min() > 0.4
