"""A layer that learns a low-rank difference equals the fixed layer at first, and stays within its rank."""

import torch

from specdec_lib.training.nets.decoder_layer import MATRICES, causal, fused_state, scaled
from specdec_lib.training.nets.decoder_layer import TrainableLayer as Whole
from specdec_lib.training.nets.lora import LowRankLayer
from tests.training.lessons import stirred
from tests.training.tiny import tiny_target

TARGET = tiny_target()
STATE = fused_state(TARGET.weights.layers[1], TARGET.shape.head_dim)


def output(layer) -> torch.Tensor:
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    cos, sin = (table[:5] for table in TARGET.rope)
    return layer.rest(x, causal(*layer.heads(scaled(x, TARGET.shape.eps), cos, sin)))


def test_it_starts_as_the_layer_it_is_made_from():
    assert torch.equal(output(LowRankLayer(TARGET.shape, STATE, 3)), output(Whole(TARGET.shape, STATE)))


def test_it_learns_a_difference_of_its_rank_and_equals_the_layer_of_those_matrices():
    layer = stirred(LowRankLayer(TARGET.shape, STATE, 3))
    learned = {name: getattr(layer, name).detach() for name in MATRICES}
    for name in MATRICES:
        assert int(torch.linalg.matrix_rank(learned[name] - STATE[name], tol=1e-4)) == 3
    assert torch.allclose(output(layer), output(Whole(TARGET.shape, learned)), atol=1e-5)


def test_only_the_factors_are_trained_and_a_matrix_thinner_than_the_rank_has_full_rank():
    thin = LowRankLayer(TARGET.shape, STATE, 3).named_parameters()
    sizes = {name: tuple(parameter.shape) for name, parameter in thin}
    assert sizes["left.gate_up"] == (64, 3)
    assert sizes["right.gate_up"] == (3, 16)
    assert len(sizes) == 8
    wide = dict(LowRankLayer(TARGET.shape, STATE, 99).named_parameters())
    assert wide["left.down"].shape == (16, 16)
    assert wide["right.down"].shape == (16, 32)


def test_both_factors_have_gradients_once_the_first_has_moved():
    layer = stirred(LowRankLayer(TARGET.shape, STATE, 3))
    output(layer).square().sum().backward()
    assert all(bool(parameter.grad.abs().sum() > 0) for parameter in layer.parameters())


def test_a_matrix_that_is_taken_over_is_the_matrix():
    layer, other = stirred(LowRankLayer(TARGET.shape, STATE, 3)), stirred(LowRankLayer(TARGET.shape, STATE, 5), 1)
    for name in MATRICES:
        layer.take(name, getattr(other, name))
    assert torch.allclose(output(layer), output(other), atol=1e-6)
