"""What drafters share: the target's frozen parts, its distribution on a restricted head, a layer's usual size."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.forward import scaled
from specdec_lib.training.nets.base import Frozen, normed, usual_size
from specdec_lib.types import Draft
from tests.training.lessons import IDS, batch_of, drafters
from tests.training.tiny import tiny_examples, tiny_target


@pytest.fixture(scope="module")
def target():
    return tiny_target()


def test_the_head_is_the_targets_own_rows_in_the_order_of_the_ids(target):
    frozen = Frozen(target, IDS)
    assert torch.equal(frozen.rows, target.weights.head.dense()[IDS])
    assert all(int(frozen.columns[token]) == column for column, token in enumerate(IDS.tolist()))
    assert int((frozen.columns == -1).sum()) == 40 - len(IDS)


def test_nothing_frozen_is_trained_or_counted_as_a_parameter(target):
    for drafter in drafters(target).values():
        assert not list(drafter.frozen.parameters())
        assert "frozen" not in " ".join(dict(drafter.named_parameters()))
        assert all(parameter.requires_grad and parameter.dtype == torch.float32 for parameter in drafter.parameters())


def test_stored_tensors_have_the_names_of_the_format(target):
    layer = {"qkv", "out", "gate_up", "down"}
    made = drafters(target)
    assert set(made["eagle"].state()) == {"fc", "norm", "ids"} | layer
    assert made["eagle"].meta()["taps"] == [1, 2, 3]
    assert set(made["draft-lm"].state()) == {"norm", "ids"} | {f"layers.{i}.{name}" for i in range(2) for name in layer}
    assert made["draft-lm"].meta() == {"layers": [0, 3]}
    assert made["early-exit"].meta() == {"layers": [1, 3]}
    assert set(made["early-exit"].state()) == {"ids"} | {f"exit.{layer}.{name}" for layer in (1, 3)
                                                        for name in ("down", "up", "norm")}
    for drafter in made.values():
        assert all(tensor.dtype == torch.float32 for name, tensor in drafter.state().items() if name != "ids")
        assert drafter.state()["ids"].tolist() == IDS.tolist()


def test_the_distribution_of_a_slot_is_the_targets_on_the_columns_of_the_head(target):
    data = tiny_examples(1)
    batch, frozen, ahead = batch_of(target, data), Frozen(target, IDS), 2
    dist = frozen.distribution(batch, ahead)
    for t in range(len(data[0].prompt), len(data[0]) - ahead):
        p = torch.softmax(target.fresh()(data[0].tokens[:t + ahead + 1], Draft()).logits[0], -1)
        known = set(batch.top_ids[0, t + ahead].tolist())
        p_head = torch.tensor([float(p[token]) if token in known else 0.0 for token in IDS.tolist()])
        found = torch.zeros(len(IDS)).scatter_add_(0, dist.columns[t], dist.probs[t])
        assert torch.allclose(found, p_head / p_head.sum(), atol=2e-3)             # kept as float16
        assert bool(dist.covered[t]) == (int(p.argmax()) in IDS.tolist())


def test_angles_are_those_of_inference(target):
    cos, sin = rope_table(target.shape, 12, torch.float32, "cpu")
    mine = Frozen(target, IDS).angles(9, 3)
    assert torch.equal(mine[0], cos[3:12])
    assert torch.equal(mine[1], sin[3:12])


def test_normed_is_the_norm_before_the_targets_head(target):
    x = torch.randn(5, 16)
    assert torch.allclose(normed(x, target.weights.norm, target.shape.eps), target.normed(x))
    assert torch.allclose(normed(x, torch.ones(16), target.shape.eps), scaled(x, target.shape.eps))


def test_a_few_huge_rows_do_not_change_the_usual_size(target):
    plain = usual_size(target, 0)
    embedding = target.weights.embedding.clone()
    embedding[:3] *= 1000
    assert usual_size(Transformer(replace(target.weights, embedding=embedding)), 0) < 1.2 * plain
    assert usual_size(Transformer(replace(target.weights, embedding=3 * target.weights.embedding)), 0) == pytest.approx(
        3 * plain)
