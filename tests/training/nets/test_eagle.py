"""An EAGLE head in training computes what the head computes at inference, and sees no more than the head does."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.heads.eagle import EagleHead
from specdec_lib.training.nets.eagle import EagleNet, default_taps
from specdec_lib.types import Draft
from tests.training.lessons import IDS, batch_of, drafters, logits, stirred
from tests.training.other_target import other_target

TAPS = (1, 2, 3)


@pytest.fixture(scope="module")
def batch(target, data):
    return batch_of(target, data, TAPS)


@pytest.fixture(scope="module")
def head(target):
    return stirred(drafters(target)["eagle"])


def at_inference(drafter, target, tokens, draft):
    """Logits [1 + n, rows] of the head that the checkpoint becomes, after this prefix and this chain."""
    made = EagleHead(drafter.state(), drafter.meta()["taps"], target.fresh())
    chain = Draft(tuple(draft), tuple(range(-1, len(draft) - 1)))
    return made(tuple(tokens), chain).logits


def check_against_inference(drafter, target, data):
    """Every slot at every depth equals what the head says that the checkpoint becomes."""
    drafter.depth = 4
    slots = logits(drafter, batch_of(target, data, TAPS))
    for i, example in enumerate(data):
        for t in range(1, len(example) - 3):
            there = at_inference(drafter, target, example.tokens[:t + 1], example.tokens[t + 1:t + 4])
            for k in range(4):
                assert torch.allclose(slots[k][i, t], there[k], atol=1e-4), (i, t, k)


@pytest.mark.parametrize("random", [False, True])
def test_every_slot_at_every_depth_equals_the_head_at_inference(target, data, random):
    check_against_inference(stirred(drafters(target, random=random)["eagle"], 1), target, data)


def test_every_slot_equals_the_head_on_a_target_that_transformers_runs(data):
    other = other_target()
    check_against_inference(stirred(EagleNet(other, IDS, TAPS), 1), other, data)


def test_on_a_target_that_transformers_runs_it_starts_from_random_weights_of_its_shape():
    other = other_target()
    made, control = EagleNet(other, IDS, TAPS).state(), EagleNet(other, IDS, TAPS, random=True).state()
    assert made["qkv"].shape == (48, 32)
    assert made["gate_up"].shape == (64, 16)
    assert all(torch.equal(made[name], tensor) for name, tensor in control.items())
    assert made["norm"].unique().tolist() == [1]
    assert min(float(made[name].std()) for name in ("qkv", "out", "gate_up", "down", "fc")) > .1


def test_hidden_states_from_the_anchor_on_are_seen_at_no_depth(batch, head):
    clean, t = logits(head, batch), 4
    spoiled = replace(batch, streams={level: stream.clone() for level, stream in batch.streams.items()})
    for stream in spoiled.streams.values():
        stream[:, t:] += 3.0
    dirty = logits(head, spoiled)
    for k in range(3):
        assert torch.equal(dirty[k][:, :t + 1], clean[k][:, :t + 1]), k
        assert not torch.allclose(dirty[k][:, t + 1], clean[k][:, t + 1])


def test_a_slot_sees_the_tokens_before_its_own_and_none_after(batch, head):
    clean, t = logits(head, batch), 4
    for k in range(3):
        later, last = batch.tokens.clone(), batch.tokens.clone()
        later[:, t + 1 + k:] = (later[:, t + 1 + k:] + 7) % 40         # what slot k of anchor t drafts, and beyond
        last[:, t + k] = (last[:, t + k] + 7) % 40
        assert torch.equal(logits(head, replace(batch, tokens=later))[k][:, t], clean[k][:, t])
        assert not torch.allclose(logits(head, replace(batch, tokens=last))[k][:, t], clean[k][:, t])


def test_a_deeper_slot_sees_the_drafted_rows_of_its_own_anchor_alone(batch, head):
    clean, t = logits(head, batch), 5
    before = {level: stream.clone() for level, stream in batch.streams.items()}
    for stream in before.values():
        stream[:, t - 1] += 3.0                    # the last stream that anchor t may see
    dirty = logits(head, replace(batch, streams=before))
    assert all(torch.equal(dirty[k][:, :t], clean[k][:, :t]) for k in range(3))
    assert all(not torch.allclose(dirty[k][:, t], clean[k][:, t]) for k in range(3))


def test_labels_are_not_seen(batch, head):
    other = replace(batch, top_ids=batch.top_ids.flip(-1), top_logp=torch.zeros_like(batch.top_logp),
                    start=batch.start * 0, stop=batch.stop - 1)
    assert all(torch.equal(a, b) for a, b in zip(logits(head, batch), logits(head, other), strict=True))


def test_padding_changes_nothing(target, data, head):
    together = batch_of(target, data, TAPS)
    for i, example in enumerate(data):
        alone = batch_of(target, [example], TAPS)
        for a, b in zip(logits(head, together), logits(head, alone), strict=True):
            assert torch.allclose(a[i, :len(example)], b[0], atol=1e-5)


def test_a_drafter_with_loaded_tensors_drafts_the_same(target, batch, head):
    other = EagleNet(target, IDS, TAPS)
    assert not torch.allclose(logits(other, batch)[0], logits(head, batch)[0])
    other.take(head.state())
    assert all(torch.equal(a, b) for a, b in zip(logits(other, batch), logits(head, batch), strict=True))
    assert all(torch.equal(other.state()[name], tensor) for name, tensor in head.state().items())


def test_the_copied_start_is_the_last_layer_with_the_last_tap_passed_through(target, batch):
    copied, random = EagleNet(target, IDS, TAPS), EagleNet(target, IDS, TAPS, random=True)
    state, last, hidden = copied.state(), target.weights.layers[-1], target.shape.hidden
    assert torch.equal(state["qkv"][:, hidden:], last.qkv.dense())
    assert not state["qkv"][:, :hidden].any()
    assert not state["fc"][:, :-hidden].any()
    assert torch.equal(state["norm"], target.weights.norm)
    assert set(random.state()) == set(state)
    assert all(tensor.shape == random.state()[name].shape for name, tensor in state.items())
    assert not torch.allclose(logits(copied, batch)[0], logits(random, batch)[0])


def test_the_start_does_not_share_memory_with_the_target(target):
    norm, down = target.weights.norm, target.weights.layers[-1].down.dense()
    before = norm.clone(), down.clone()
    stirred(EagleNet(target, IDS, TAPS))
    assert torch.equal(norm, before[0])
    assert torch.equal(down, before[1])


def test_more_slots_than_were_trained_can_be_drafted(batch, head):
    trained, more = logits(head, batch), head.slots(batch, 5)
    assert len(trained) == 3
    assert len(more) == 5
    assert torch.allclose(more[2] @ head.frozen.rows.T, trained[2], atol=1e-6)


def test_taps_are_a_low_a_middle_and_a_high_layer():
    assert default_taps(30) == (2, 15, 27)
    assert default_taps(3) == (1, 2)
    assert default_taps(1) == (1,)
