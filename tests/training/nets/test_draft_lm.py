"""A draft model in training equals the model that drafts at inference."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.training.nets.draft_lm import DraftLMNet, outer_layers
from specdec_lib.types import Draft
from tests.training.lessons import IDS, batch_of, drafters, logits, stirred


@pytest.fixture(scope="module")
def batch(target, data):
    return batch_of(target, data)


@pytest.mark.parametrize("random", [False, True])
def test_its_slot_equals_the_model_after_the_prefix(target, data, batch, random):
    drafter = stirred(drafters(target, random=random)["draft-lm"])
    slots, = logits(drafter, batch)
    for i, example in enumerate(data):
        for t in range(len(example)):
            there = draft_lm(drafter.state(), target.weights)(example.tokens[:t + 1], Draft()).logits[0]
            assert torch.allclose(slots[i, t], there, atol=1e-4), (i, t)


def test_its_slot_one_token_later_is_the_second_node_of_a_chain(target, data, batch):
    drafter = stirred(drafters(target)["draft-lm"])
    slots, = logits(drafter, batch)
    tokens = data[0].tokens
    chain = draft_lm(drafter.state(), target.weights)(tokens[:4], Draft(tokens[4:6], (-1, 0))).logits
    assert torch.allclose(slots[0, 3:6], chain, atol=1e-4)


def test_it_sees_the_anchor_and_no_token_after_it(target, batch):
    drafter = stirred(drafters(target)["draft-lm"])
    clean, t = logits(drafter, batch)[0], 4
    later, last = batch.tokens.clone(), batch.tokens.clone()
    later[:, t + 1:] = (later[:, t + 1:] + 7) % 40
    last[:, t] = (last[:, t] + 7) % 40
    labels = replace(batch, tokens=later, top_ids=batch.top_ids.flip(-1), top_logp=batch.top_logp * 0)
    assert torch.equal(logits(drafter, labels)[0][:, :t + 1], clean[:, :t + 1])
    assert not torch.allclose(logits(drafter, replace(batch, tokens=last))[0][:, t], clean[:, t])


def test_a_drafter_with_loaded_tensors_drafts_the_same(target, batch):
    drafter, other = stirred(drafters(target)["draft-lm"]), DraftLMNet(target, IDS, (0, 3))
    assert not torch.allclose(logits(other, batch)[0], logits(drafter, batch)[0])
    other.take(drafter.state())
    assert torch.equal(logits(other, batch)[0], logits(drafter, batch)[0])


def test_the_copied_start_is_the_targets_layers_and_the_random_one_is_not(target):
    copied, random = DraftLMNet(target, IDS, (0, 3)).state(), DraftLMNet(target, IDS, (0, 3), random=True).state()
    for i, layer in enumerate((0, 3)):
        for name in ("qkv", "out", "gate_up", "down"):
            matrix = getattr(target.weights.layers[layer], name).dense()
            assert torch.equal(copied[f"layers.{i}.{name}"], matrix)
            assert random[f"layers.{i}.{name}"].shape == matrix.shape
            assert not torch.allclose(random[f"layers.{i}.{name}"], matrix)
    assert torch.equal(copied["norm"], target.weights.norm)
    assert torch.equal(random["norm"], torch.ones(16))


def test_with_all_layers_and_all_tokens_the_start_is_the_target(target, data, batch):
    slots, = logits(DraftLMNet(target, torch.arange(40), (0, 1, 2, 3)), batch)
    tokens = data[1].tokens
    assert torch.allclose(slots[1, len(tokens) - 1], target.fresh()(tokens, Draft()).logits[0], atol=1e-4)


def test_training_does_not_change_the_target(target):
    before = target.weights.layers[0].qkv.dense().clone(), target.weights.norm.clone()
    stirred(DraftLMNet(target, IDS, (0, 3)))
    assert torch.equal(target.weights.layers[0].qkv.dense(), before[0])
    assert torch.equal(target.weights.norm, before[1])


def test_it_starts_from_the_first_layers_and_the_last():
    assert outer_layers(30) == (0, 1, 29)
    assert outer_layers(2) == (0, 1)
    assert outer_layers(1) == (0,)
