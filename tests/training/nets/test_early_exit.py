"""Exit heads in training equal the exits of the target at inference."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.heads.exits import exit_heads
from specdec_lib.training.nets.early_exit import EarlyExitNet, default_exits
from specdec_lib.types import Draft
from tests.training.lessons import IDS, batch_of, drafters, logits, stirred

EXITS = (1, 3)


@pytest.fixture(scope="module")
def batch(target, data):
    return batch_of(target, data, EXITS)


@pytest.fixture(scope="module")
def drafter(target):
    return stirred(drafters(target)["early-exit"])


def test_every_exit_equals_the_targets_exit_at_inference(target, data, batch, drafter):
    heads = exit_heads(drafter.state(), tuple(drafter.meta()["layers"]), target.weights)
    slots = dict(zip(EXITS, logits(drafter, batch), strict=True))
    for layer in EXITS:
        for i, example in enumerate(data):
            for t in range(len(example)):
                there = target.fresh().exit(layer, heads[layer])(example.tokens[:t + 1], Draft()).logits[0]
                assert torch.allclose(slots[layer][i, t], there, atol=1e-4), (layer, i, t)


def test_it_sees_the_hidden_state_of_the_anchor_alone(batch, drafter):
    clean, t = logits(drafter, batch), 4
    for level in EXITS:
        batch_with = replace(batch, streams={**batch.streams, level: batch.streams[level].clone()})
        batch_with.streams[level][:, t] += 3.0
        dirty = logits(drafter, batch_with)
        for mine, a, b in zip(EXITS, clean, dirty, strict=True):
            apart = (a - b).abs().amax((0, 2)) > 1e-6
            assert apart.nonzero().flatten().tolist() == ([t] if mine == level else [])


def test_it_sees_neither_tokens_nor_labels(batch, drafter):
    other = replace(batch, tokens=batch.tokens * 0, top_ids=batch.top_ids.flip(-1), top_logp=batch.top_logp * 0)
    assert all(torch.equal(a, b) for a, b in zip(logits(drafter, batch), logits(drafter, other), strict=True))


def test_untrained_it_is_the_targets_norm_and_head(target, data, batch):
    slots = logits(EarlyExitNet(target, IDS, EXITS, rank=4), batch)
    for layer, slot in zip(EXITS, slots, strict=True):
        for i, example in enumerate(data):
            plain = target.fresh().exit(layer)(example.tokens, Draft()).logits[0]
            assert torch.allclose(slot[i, len(example) - 1], plain[IDS], atol=1e-4)


def test_the_random_start_does_not_use_the_targets_norm(target, batch):
    copied, random = EarlyExitNet(target, IDS, EXITS, rank=4), EarlyExitNet(target, IDS, EXITS, rank=4, random=True)
    assert torch.equal(random.state()["exit.1.norm"], torch.ones(16))
    assert not torch.allclose(logits(copied, batch)[0], logits(random, batch)[0])


def test_a_drafter_with_loaded_tensors_drafts_the_same(target, batch, drafter):
    other = EarlyExitNet(target, IDS, EXITS, rank=4)
    assert not torch.allclose(logits(other, batch)[0], logits(drafter, batch)[0])
    other.take(drafter.state())
    for mine, theirs in zip(logits(other, batch), logits(drafter, batch), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_exits_share_nothing(target, batch):
    drafter = stirred(EarlyExitNet(target, IDS, EXITS, rank=4))
    clean = logits(drafter, batch)
    with torch.no_grad():
        for parts in (drafter.down, drafter.up, drafter.norm):
            parts["1"].add_(1.0)
    first, second = logits(drafter, batch)
    assert not torch.allclose(first, clean[0])
    assert torch.equal(second, clean[1])


def test_exits_lie_after_a_sixth_a_third_and_a_half():
    assert default_exits(30) == (5, 10, 15)
    assert default_exits(2) == (1,)
