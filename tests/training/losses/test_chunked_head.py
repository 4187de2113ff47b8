"""The chunked head equals one dense computation in loss and gradient, and marks slots that it cannot train."""

import pytest
import torch

from specdec_lib.training.losses import chunked_head
from specdec_lib.training.losses.chunked_head import slot_losses, teacher_rows, weighted_loss
from specdec_lib.training.losses.distillation import SLOT_LOSSES

VOCAB, HIDDEN, KEPT, SLOTS = 12, 5, 6, 11
IDS = torch.tensor([0, 2, 3, 5, 8, 9, 11])         # tokens of the head's rows
COLUMNS = torch.full((VOCAB,), -1).scatter(0, IDS, torch.arange(len(IDS)))


def drawn(seed: int = 0):
    """Streams, head, a law and weights; the last slot's law lies outside the head altogether."""
    dice = torch.Generator().manual_seed(seed)
    x, head = torch.randn(SLOTS, HIDDEN, generator=dice), torch.randn(len(IDS), HIDDEN, generator=dice)
    logp, ids = torch.randn(SLOTS, VOCAB, generator=dice).log_softmax(-1).sort(-1, descending=True)
    ids, logp = ids[:, :KEPT], logp[:, :KEPT]
    ids[-1] = torch.tensor([1, 4, 6, 7, 10, 1])
    return x, head, teacher_rows(ids, logp, COLUMNS), torch.rand(SLOTS, generator=dice)


def dense(x, head, dist, weight, kind):
    """The same loss with all logits at once, and what autograd says of it."""
    x = x.clone().requires_grad_()
    p = torch.zeros(len(x), len(head)).scatter_add(1, dist.columns, dist.probs)
    loss = SLOT_LOSSES[kind](x @ head.T, p)
    (weight * loss).sum().backward()
    return loss.detach(), x.grad


@pytest.mark.parametrize("rows", [1, 4, SLOTS, 100])
@pytest.mark.parametrize("kind", SLOT_LOSSES)
def test_the_head_in_pieces_is_the_dense_loss_with_its_gradient(kind, rows, monkeypatch):
    monkeypatch.setitem(chunked_head.PIECE, "cpu", rows)
    x, head, dist, weight = drawn()
    assert 0 < dist.covered.sum() < SLOTS
    loss, gradient = dense(x, head, dist, weight, kind)
    x.requires_grad_()
    total, told = weighted_loss(x, head, dist, weight, kind)
    (3 * total).backward()
    assert torch.allclose(total, (weight * loss).sum(), atol=1e-5)
    assert torch.allclose(told.loss, loss, atol=1e-5)
    assert torch.allclose(x.grad, 3 * gradient, atol=1e-5)


def test_a_slot_without_weight_gets_no_gradient():
    x, head, dist, weight = drawn()
    weight[3] = 0
    x.requires_grad_()
    weighted_loss(x, head, dist, weight, "ce")[0].backward()
    assert x.grad[3].abs().max() == 0
    assert x.grad[2].abs().max() > 0


@pytest.mark.parametrize("kind", SLOT_LOSSES)
def test_a_distribution_outside_the_head_has_no_gradient(kind):
    x, head, dist, weight = drawn()
    x.requires_grad_()
    weighted_loss(x, head, dist, weight, kind)[0].backward()
    assert x.grad[-1].abs().max() < 1e-6
    assert x.grad[:-1].abs().amax(1).min() > 1e-4


def test_one_step_against_the_gradient_lowers_the_loss():
    x, head, dist, weight = drawn()
    x.requires_grad_()
    before = weighted_loss(x, head, dist, weight, "ce")[0]
    before.backward()
    assert weighted_loss(x - 0.1 * x.grad, head, dist, weight, "ce")[0] < before


@pytest.mark.parametrize("rows", [2, 100])
def test_slots_have_the_best_column_and_the_probability_of_the_targets_best(rows, monkeypatch):
    monkeypatch.setitem(chunked_head.PIECE, "cpu", rows)
    x, head, dist, weight = drawn()
    q = (x @ head.T).softmax(-1)
    for told in (slot_losses(x, head, dist), weighted_loss(x, head, dist, weight, "tv")[1]):
        assert torch.equal(told.best, q.argmax(-1))
        prob = q.gather(1, dist.columns[:, :1])[:, 0] * dist.covered
        assert torch.allclose(told.prob, prob, atol=1e-6)
    assert torch.allclose(slot_losses(x, head, dist).loss, dense(x, head, dist, weight, "ce")[0], atol=1e-5)


def test_no_slots_have_loss_zero():
    x, head, dist, weight = drawn()
    none = chunked_head.TeacherRows(*(part[:0] for part in dist))
    x = x[:0].requires_grad_()
    total, told = weighted_loss(x, head, none, weight[:0], "ce")
    total.backward()
    assert total == 0
    assert len(told.loss) == len(slot_losses(x, head, none).best) == 0


def test_the_targets_distribution_is_renormalised_on_the_heads_columns():
    ids, probs = torch.tensor([[2, 1, 5]]), torch.tensor([[0.5, 0.25, 0.125]])
    dist = teacher_rows(ids, probs.log(), COLUMNS)
    assert dist.probs[0].tolist() == pytest.approx([0.8, 0.0, 0.2])
    assert IDS[dist.columns[0, [0, 2]]].tolist() == [2, 5]
    assert dist.covered.tolist() == [True]


def test_a_slot_whose_best_token_the_head_lacks_is_not_covered():
    ids = torch.tensor([[1, 2, 3], [2, 1, 4], [1, 4, 6]])
    dist = teacher_rows(ids, torch.tensor([0.5, 0.3, 0.2]).log().expand(3, 3), COLUMNS)
    assert dist.covered.tolist() == [False, True, False]
    assert dist.probs.sum(-1).tolist() == pytest.approx([1, 1, 0])
    assert dist.columns.min() >= 0
