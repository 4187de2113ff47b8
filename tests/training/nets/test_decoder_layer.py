"""The trainable layer equals the decoder's layer over padded batches, with gradients."""

import pytest
import torch

from specdec_lib.models.llama import packed_linear
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.training.data.features import Features
from specdec_lib.training.nets.base import Frozen
from specdec_lib.training.nets.decoder_layer import TrainableLayer, causal, fused_state, rotated, scaled
from tests.training.tiny import tiny_examples, tiny_target

SIZES = {"grouped": {}, "each its own keys": {"kv_heads": 4}, "one key for all": {"kv_heads": 1, "eps": 1e-2},
         "wide heads": {"head_dim": 10}}


def through(target: Transformer, level: int, x: torch.Tensor, state=None) -> torch.Tensor:
    """The stream after one more of the target's layers, through the trainable one."""
    layer = TrainableLayer(target.shape, state or fused_state(target.weights.layers[level], target.shape.head_dim))
    angles = Frozen(target, torch.arange(4)).angles(x.shape[1])
    return layer.rest(x, causal(*layer.heads(scaled(x, target.shape.eps), *angles)))


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_every_layer_gives_the_targets_next_hidden_state_over_a_padded_batch(sizes):
    target, data = tiny_target(**sizes), tiny_examples(4, prompt=(3, 20))
    batch = Features(target, data, range(5), None)(range(4), range(5))
    assert len(set(batch.stop.tolist())) > 1
    for level in range(4):
        out = through(target, level, batch.streams[level])
        if level == 3:                             # the last stream is kept as the head reads it
            out = target.normed(out)
        for b, stop in enumerate(batch.stop):
            assert torch.allclose(out[b, :stop], batch.streams[level + 1][b, :stop], atol=1e-5)


def test_padding_does_not_leak_into_shorter_rows():
    target = tiny_target()
    x = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))
    padded = x.clone()
    padded[0, 4:] = 1e3
    one, other = through(target, 1, x), through(target, 1, padded)
    assert torch.equal(one[0, :4], other[0, :4])
    assert torch.equal(one[1], other[1])
    assert torch.allclose(through(target, 1, x[:1, :4]), one[:1, :4], atol=1e-6)


def test_a_row_sees_every_row_before_it():
    target = tiny_target()
    x = torch.randn(1, 6, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    through(target, 0, x)[0, 4].sum().backward()
    assert (x.grad[0, :5].abs().amax(-1) > 1e-4).all()
    assert (x.grad[0, 5] == 0).all()


def test_every_matrix_of_the_layer_can_be_learned():
    target = tiny_target()
    layer = TrainableLayer(target.shape, fused_state(target.weights.layers[0], 4))
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    angles = Frozen(target, torch.arange(4)).angles(5)
    layer.rest(x, causal(*layer.heads(scaled(x, 1e-5), *angles))).pow(2).sum().backward()
    assert {name for name, p in layer.named_parameters() if p.grad.abs().max() > 1e-4} == {
        "qkv", "out", "gate_up", "down"}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("head_norms", [True, False])
def test_learning_leaves_the_target_as_it_is(head_norms, packed, monkeypatch):
    if not packed:                                 # as on a GPU, where the plain matrix is the stored one
        monkeypatch.setattr(packed_linear, "packs", lambda weight: False)
    target = tiny_target(head_norms=head_norms)
    before = target.weights.layers[0].qkv.dense().clone()
    layer = TrainableLayer(target.shape, fused_state(target.weights.layers[0], 4))
    with torch.no_grad():
        layer.qkv.add_(1)
    assert torch.equal(target.weights.layers[0].qkv.dense(), before)


def test_a_model_with_norms_on_its_heads_hands_attentions_scale_to_the_queries():
    shape = tiny_target(head_norms=True).shape
    layer = random_weights(shape).layers[0]
    state, queries = fused_state(layer, shape.head_dim), shape.heads * shape.head_dim
    assert torch.allclose(state["qkv"][:queries], layer.qkv.dense()[:queries] / 2)         # 1 / sqrt(head_dim)
    assert torch.equal(state["qkv"][queries:], layer.qkv.dense()[queries:])


def test_rotated_heads_keep_their_norm_and_products_depend_on_distance_alone():
    cos, sin = Frozen(tiny_target(), torch.arange(4)).angles(20)
    q, k = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    far = [float(rotated(q, cos[t], sin[t]) @ rotated(k, cos[t + 3], sin[t + 3])) for t in (0, 5, 16)]
    assert far == pytest.approx([far[0]] * 3, rel=1e-4)
    assert rotated(q, cos[9], sin[9]).norm().item() == pytest.approx(q.norm().item(), rel=1e-5)
    assert rotated(q, cos[1], sin[1]).tolist() != pytest.approx(q.tolist(), rel=1e-2)
