"""The loss of a batch against plain loops; prompts and padding do not count."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from specdec_lib.training.data.batches import Batch
from specdec_lib.training.data.features import Features
from specdec_lib.training.losses.chunked_head import DISTRIBUTION, LABELS, TOKEN
from specdec_lib.training.losses.distillation import DEPTH_WEIGHTS, SLOT_LOSSES, dpace_weights, streak_weights
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.base import Frozen
from tests.training.tiny import tiny_examples, tiny_target

IDS = torch.arange(0, 40, 2)                       # the head has every second token
DEPTH = 3


class Table(nn.Module):
    """A drafter that looks the stream of every slot up: free numbers [DEPTH, B, S, hidden]."""

    def __init__(self, target, batch, unrolled: bool = True):
        super().__init__()
        self.frozen, self.unrolled = Frozen(target, IDS), unrolled
        dice = torch.Generator().manual_seed(0)
        self.x = nn.Parameter(torch.randn(DEPTH, *batch.tokens.shape, target.shape.hidden, generator=dice))

    def slots(self, batch: Batch):
        return list(self.x)


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture(scope="module")
def batch(target):
    return Features(target, tiny_examples(5), (), None)(range(5))


def by_hand(drafter: Table, batch: Batch, slot: str, depth: str, labels: str = DISTRIBUTION) -> float:
    """The same objective, one slot at a time."""
    dist, best = torch.zeros(*batch.tokens.shape, 40), batch.top_ids[..., 0]
    dist.scatter_(-1, batch.top_ids, batch.top_logp.exp())
    if labels == TOKEN:
        best = batch.tokens.roll(-1, 1)            # the text's own
        dist = nn.functional.one_hot(best, 40).float()
    logits = drafter.x.detach() @ drafter.frozen.rows.T
    losses, probs = {}, torch.zeros(DEPTH, *batch.tokens.shape)
    for k in range(DEPTH):
        ahead = k if drafter.unrolled else 0
        for b, t in torch.cartesian_prod(*map(torch.arange, batch.tokens.shape)).tolist():
            place = t + 1 + ahead
            if batch.start[b] <= place < batch.stop[b] and best[b, place - 1] % 2 == 0:
                p = dist[b, place - 1, IDS]
                losses[k, b, t] = SLOT_LOSSES[slot](logits[k, b, t], p / p.sum())
                probs[k, b, t] = logits[k, b, t].softmax(-1)[best[b, place - 1] // 2]
    flat = probs.flatten(1)
    weights = (DEPTH_WEIGHTS[depth](flat) if drafter.unrolled else torch.ones_like(flat)).view(probs.shape)
    anchors = sum(k == 0 for k, _, _ in losses)
    return float(sum(loss * weights[where] for where, loss in losses.items()) / anchors)


@pytest.mark.parametrize("depth", DEPTH_WEIGHTS)
@pytest.mark.parametrize("slot", SLOT_LOSSES)
def test_the_loss_equals_plain_loops_over_anchors_and_depths(target, batch, slot, depth):
    drafter = Table(target, batch)
    assert Objective(slot, depth)(drafter, batch)[0].item() == pytest.approx(by_hand(drafter, batch, slot, depth), 1e-4)


@pytest.mark.parametrize("depth", DEPTH_WEIGHTS)
def test_labels_may_be_the_texts_own_tokens_also_where_the_target_would_say_another(target, batch, depth):
    drafter = Table(target, batch)
    said = [Objective("ce", depth, labels=labels)(drafter, batch)[0].item() for labels in LABELS]
    assert said == pytest.approx([by_hand(drafter, batch, "ce", depth, labels) for labels in LABELS], 1e-4)
    assert said[0] != pytest.approx(said[1], 1e-3)


def test_independent_drafters_all_learn_the_next_token_with_equal_weights(target, batch):
    drafter = Table(target, batch, unrolled=False)
    said = [Objective("ce", depth)(drafter, batch)[0].item() for depth in DEPTH_WEIGHTS]
    assert said == pytest.approx([by_hand(drafter, batch, "ce", "decay")] * len(said), 1e-4)


def test_a_drafter_with_a_loss_of_its_own_uses_it(target, batch):
    class Own(Table):
        def loss(self, batch, objective):
            return objective.slot, batch.seed

    assert Objective("tv")(Own(target, batch), replace(batch, seed=3)) == ("tv", 3)


@pytest.mark.parametrize("depth", DEPTH_WEIGHTS)
def test_only_slots_that_draft_a_token_of_the_answer_are_learned(target, batch, depth):
    drafter = Table(target, batch)
    Objective("ce", depth)(drafter, batch)[0].backward()
    for k in range(DEPTH):
        learned = drafter.x.grad[k].abs().amax(-1) > 0
        assert learned.any()
        assert not (learned & ~batch.drafted(1 + k)).any()


@pytest.mark.parametrize("depth", DEPTH_WEIGHTS)
def test_distributions_of_prompt_and_padding_and_tokens_behind_the_end_do_not_matter(target, batch, depth):
    drafter, said = Table(target, batch), Objective("ce", depth)
    outside = ~batch.drafted(1)                    # row t holds the law of token t + 1
    behind = torch.arange(batch.tokens.shape[1]) >= batch.stop[:, None]
    poisoned = replace(batch, tokens=batch.tokens.masked_fill(behind, 39),
                       top_ids=torch.where(outside[..., None], batch.top_ids.flip(-1), batch.top_ids),
                       top_logp=batch.top_logp.masked_fill(outside[..., None], -1.0))
    assert behind.any()
    assert not torch.equal(poisoned.top_ids, batch.top_ids)
    assert torch.equal(said(drafter, poisoned)[0], said(drafter, batch)[0])
    assert said(drafter, poisoned)[1] == said(drafter, batch)[1]


def test_the_distribution_of_an_answers_token_matters(target, batch):
    drafter, last = Table(target, batch), int(batch.stop[0]) - 2
    first = int(batch.start[0]) - 1
    for row in (first, last):
        ids = batch.top_ids.clone()
        ids[0, row] = torch.arange(ids.shape[-1])  # token 0 is best, and the head has it
        assert Objective()(drafter, replace(batch, top_ids=ids))[0] != Objective()(drafter, batch)[0]


def test_figures_are_one_number_per_depth_and_right_where_the_best_is_the_targets(target, batch):
    drafter = Table(target, batch)
    best = drafter.frozen.distribution(batch, 0).columns[:, 0].unflatten(0, batch.tokens.shape)
    rows = nn.functional.normalize(drafter.frozen.rows, dim=-1)
    drafter.x.data[0] = 100 * rows[best]           # points at the target's own token
    told = Objective()(drafter, batch)[1]
    assert len(told["loss"]) == len(told["right"]) == DEPTH
    assert told["right"][0] > 0.9 > 0.5 > max(told["right"][1:])


def test_a_batch_with_nothing_to_learn_costs_nothing(target, batch):
    nothing = replace(batch, start=batch.stop)
    loss, told = Objective("ce", "dpace")(Table(target, batch), nothing)
    assert loss.item() == 0
    assert told["loss"] == [0.0] * DEPTH


@pytest.mark.parametrize("names", [("kl", "decay"), ("ce", "linear")])
def test_an_unknown_loss_is_refused(names):
    with pytest.raises(ValueError, match="take one of ce, tv, mixed and one of decay, dpace, streak"):
        Objective(*names)


def test_streak_and_dpace_of_the_same_smoothing_are_one():
    """The gradient of the expected streak is D-PACE's without smoothing."""
    probs = torch.rand(4, 6, generator=torch.Generator().manual_seed(0))
    streak, dpace = (Objective("ce", depth, 0.2).by_depth(probs) for depth in ("streak", "dpace"))
    assert torch.equal(streak, dpace)
    assert torch.equal(Objective("ce", "dpace", 0.0).by_depth(probs), streak_weights(probs))
    assert torch.equal(Objective("ce", "streak").by_depth(probs), streak_weights(probs))
    assert torch.equal(Objective("ce", "dpace").by_depth(probs), dpace_weights(probs, 0.5))


def test_unknown_labels_are_refused():
    with pytest.raises(ValueError, match="no labels 'best': take distribution or token"):
        Objective(labels="best")


@pytest.mark.parametrize(("depth", "smooth"), [("decay", 0.1), ("streak", 1.0), ("dpace", -0.1)])
def test_an_impossible_smoothing_is_refused(depth, smooth):
    with pytest.raises(ValueError, match="smoothed by a share from 0 to below 1"):
        Objective("ce", depth, smooth)
