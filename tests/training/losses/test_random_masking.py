"""Tokens are hidden at the rate of their block; the expected weight of a block is one."""

import pytest
import torch

from specdec_lib.training.losses.random_masking import LEAST, hidden_weights, hide_tokens, mask_rates


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_rates_are_uniform_between_the_least_and_one():
    t = mask_rates((20000,), dice())
    assert float(t.min()) >= LEAST
    assert float(t.max()) <= 1
    assert torch.allclose(t.quantile(torch.tensor([.25, .5, .75])), torch.tensor([.2875, .525, .7625]), atol=0.02)


def test_tokens_are_hidden_independently_at_the_rate_of_their_block():
    t = torch.tensor([0.1, 0.5, 1.0])
    masked = hide_tokens(t.repeat(4000, 1), 6, dice()).float()
    assert torch.allclose(masked.mean((0, 2)), t, atol=0.02)
    assert abs(float((masked[:, 1, 0] * masked[:, 1, 5]).mean()) - 0.25) < 0.03


@pytest.mark.parametrize(("most", "whole"), [(1e9, 1.0), (10.0, (10 * (0.1 ** 2 - 0.05 ** 2) / 2 + 0.9) / 0.95)])
def test_a_block_has_expected_weight_one_except_for_clipping(most, whole):
    t = mask_rates((40000,), dice())
    counted = torch.arange(6) < torch.randint(1, 7, (40000, 1), generator=dice(1))
    weights = hidden_weights(hide_tokens(t, 6, dice(2)), t, counted, most)
    assert float(weights.sum(-1).mean()) == pytest.approx(whole, abs=0.01)
    assert not weights[~counted].any()


def test_weights_by_hand():
    t = torch.tensor([0.5, 0.05, 0.2])
    masked = torch.tensor([[True, False, True], [False, True, True], [True, True, True]])
    counted = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
    want = torch.tensor([[2 / 3, 0, 2 / 3], [0, 5, 0], [0, 0, 0]])
    assert torch.allclose(hidden_weights(masked, t, counted), want)
