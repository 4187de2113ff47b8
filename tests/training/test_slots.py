"""The head in pieces says what one dense computation says, loss and gradient, and marks what it cannot teach."""

import pytest
import torch

from specdec_lib.training import slots
from specdec_lib.training.losses import SLOT_LOSSES
from specdec_lib.training.slots import measured, teacher, weighted

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
    return x, head, teacher(ids, logp, COLUMNS), torch.rand(SLOTS, generator=dice)


def dense(x, head, law, weight, kind):
    """The same loss with all logits at once, and what autograd says of it."""
    x = x.clone().requires_grad_()
    p = torch.zeros(len(x), len(head)).scatter_add(1, law.columns, law.chances)
    loss = SLOT_LOSSES[kind](x @ head.T, p)
    (weight * loss).sum().backward()
    return loss.detach(), x.grad


@pytest.mark.parametrize("rows", [1, 4, SLOTS, 100])
@pytest.mark.parametrize("kind", SLOT_LOSSES)
def test_the_head_in_pieces_is_the_dense_loss_with_its_gradient(kind, rows, monkeypatch):
    monkeypatch.setattr(slots, "PIECE", rows)
    x, head, law, weight = drawn()
    assert 0 < law.covered.sum() < SLOTS
    loss, gradient = dense(x, head, law, weight, kind)
    x.requires_grad_()
    total, told = weighted(x, head, law, weight, kind)
    (3 * total).backward()
    assert torch.allclose(total, (weight * loss).sum(), atol=1e-5)
    assert torch.allclose(told.loss, loss, atol=1e-5)
    assert torch.allclose(x.grad, 3 * gradient, atol=1e-5)


def test_a_slot_without_weight_gets_no_gradient():
    x, head, law, weight = drawn()
    weight[3] = 0
    x.requires_grad_()
    weighted(x, head, law, weight, "ce")[0].backward()
    assert x.grad[3].abs().max() == 0 and x.grad[2].abs().max() > 0


@pytest.mark.parametrize("kind", SLOT_LOSSES)
def test_a_law_outside_the_head_pulls_nowhere(kind):
    x, head, law, weight = drawn()
    x.requires_grad_()
    weighted(x, head, law, weight, kind)[0].backward()
    assert x.grad[-1].abs().max() < 1e-6 and x.grad[:-1].abs().amax(1).min() > 1e-4


def test_one_step_against_the_gradient_lowers_the_loss():
    x, head, law, weight = drawn()
    x.requires_grad_()
    before = weighted(x, head, law, weight, "ce")[0]
    before.backward()
    assert weighted(x - 0.1 * x.grad, head, law, weight, "ce")[0] < before


@pytest.mark.parametrize("rows", [2, 100])
def test_slots_tell_the_best_column_and_the_chance_of_the_targets_best(rows, monkeypatch):
    monkeypatch.setattr(slots, "PIECE", rows)
    x, head, law, weight = drawn()
    q = (x @ head.T).softmax(-1)
    for told in (measured(x, head, law), weighted(x, head, law, weight, "tv")[1]):
        assert torch.equal(told.best, q.argmax(-1))
        chance = q.gather(1, law.columns[:, :1])[:, 0] * law.covered
        assert torch.allclose(told.chance, chance, atol=1e-6)
    assert torch.allclose(measured(x, head, law).loss, dense(x, head, law, weight, "ce")[0], atol=1e-5)


def test_no_slots_at_all_lose_nothing():
    x, head, law, weight = drawn()
    none = slots.Teacher(*(part[:0] for part in law))
    x = x[:0].requires_grad_()
    total, told = weighted(x, head, none, weight[:0], "ce")
    total.backward()
    assert total == 0 and len(told.loss) == len(measured(x, head, none).best) == 0


def test_the_teachers_law_is_renormalised_on_the_heads_columns():
    ids, chances = torch.tensor([[2, 1, 5]]), torch.tensor([[0.5, 0.25, 0.125]])
    law = teacher(ids, chances.log(), COLUMNS)
    assert law.chances[0].tolist() == pytest.approx([0.8, 0.0, 0.2])
    assert IDS[law.columns[0, [0, 2]]].tolist() == [2, 5]
    assert law.covered.tolist() == [True]


def test_a_slot_whose_best_token_the_head_lacks_is_not_covered():
    ids = torch.tensor([[1, 2, 3], [2, 1, 4], [1, 4, 6]])
    law = teacher(ids, torch.tensor([0.5, 0.3, 0.2]).log().expand(3, 3), COLUMNS)
    assert law.covered.tolist() == [False, True, False]
    assert law.chances.sum(-1).tolist() == pytest.approx([1, 1, 0])
    assert law.columns.min() >= 0
