"""The drafter's loss: which slots are asked, which are revealed, and that no slot sees what follows it."""

import pytest
import torch
from torch import Generator

from specdec_lib.seq2seq.alphabet import PAD
from specdec_lib.seq2seq.network import BlockDecoder
from specdec_lib.seq2seq.stored import sizes_of
from specdec_lib.training.losses.masked_block import (
    SMOOTHING,
    block_targets,
    fill,
    glanced,
    glancing_ratio,
    masked_block_loss,
    random_starts,
)
from tests.seq2seq.worlds import SOURCE, drafter_checkpoint, network

TARGETS = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, PAD, PAD]])
INPUTS = torch.tensor([[1, 5, 6, 7, 8], [1, 9, 10, PAD, PAD]])


@pytest.fixture(scope="module")
def drafter():
    stored = drafter_checkpoint()
    net = BlockDecoder(sizes_of(stored)).double()
    net.load_state_dict(dict(stored.state))
    return net


def memory_of(drafter):
    encoded, mask = network().encoder.run(torch.tensor([SOURCE, SOURCE]))
    return drafter.memory(encoded, mask)


def test_the_ratio_falls_from_a_half_to_three_tenths():
    assert [round(glancing_ratio(done), 12) for done in (0, 0.5, 1, 2)] == [0.5, 0.4, 0.3, 0.3]


def test_a_block_asks_for_what_follows_the_prefix_and_for_nothing_behind_the_end():
    assert block_targets(TARGETS, torch.tensor([1, 2]), 3).tolist() == [[6, 7, 8], [2, PAD, PAD]]
    starts = torch.stack([random_starts(TARGETS, Generator().manual_seed(seed)) for seed in range(200)])
    assert [sorted(set(column.tolist())) for column in starts.T] == [[0, 1, 2, 3, 4], [0, 1, 2]]


def test_glancing_reveals_that_share_of_the_wrong_slots_true_tokens_and_leaves_one():
    wanted = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 6, 7, 8, PAD, PAD], [5, PAD, PAD, PAD, PAD, PAD],
                           [5, 6, 7, 8, 9, 10]])
    wrong = torch.tensor([[1] * 6, [1] * 4 + [3] * 2, [1] + [3] * 5, [5, 6, 7, 8, 9, 10]])
    seen = set()
    for seed in range(40):
        shown = glanced(wanted, wrong, 0.5, Generator().manual_seed(seed))
        assert (shown != PAD).sum(1).tolist() == [3, 2, 0, 0]
        assert bool(((shown == wanted) | (shown == PAD)).all())
        seen |= {tuple((shown[0] != PAD).nonzero()[:, 0].tolist())}
    assert len(seen) > 8
    assert (glanced(wanted, wrong, 1.0, Generator()) != PAD).sum(1).tolist() == [5, 3, 0, 0]


def test_a_slot_sees_its_prefix_and_the_other_slots_and_nothing_of_the_text_behind(drafter):
    start, memory = torch.tensor([2, 1]), memory_of(drafter)
    with torch.no_grad():
        plain = fill(drafter, memory, INPUTS, start, 4)
        later = INPUTS.clone()
        later[0, 3:], later[1, 2:] = 20, 20
        assert torch.equal(fill(drafter, memory, later, start, 4), plain)
        earlier = INPUTS.clone()
        earlier[0, 2] = 20
        assert not torch.allclose(fill(drafter, memory, earlier, start, 4)[0], plain[0])
        shown = torch.tensor([[PAD, PAD, PAD, 30], [PAD] * 4])
        changed = fill(drafter, memory, INPUTS, start, 4, shown)
    assert not torch.allclose(changed[0, 0], plain[0, 0])
    assert torch.equal(changed[1], plain[1])


def test_the_loss_is_the_smoothed_one_of_the_slots_that_were_not_revealed(drafter):
    memory = memory_of(drafter)
    loss, told = masked_block_loss(drafter, memory, INPUTS, TARGETS, 5, 0.0, Generator().manual_seed(4))
    dice = Generator().manual_seed(4)
    start = random_starts(TARGETS, dice)
    wanted = block_targets(TARGETS, start, 5)
    with torch.no_grad():
        shown = glanced(wanted, fill(drafter, memory, INPUTS, start, 5).argmax(-1), 0.5, dice)
        logp = fill(drafter, memory, INPUTS, start, 5, shown).log_softmax(-1)
    asked = (wanted != PAD) & (shown == PAD)
    assert bool((shown != PAD).any())
    own = logp.gather(-1, wanted[..., None])[..., 0]
    mine = -((1 - SMOOTHING) * own + SMOOTHING * logp.mean(-1))[asked].mean()
    assert float(loss.detach()) == pytest.approx(float(mine), abs=1e-5)
    assert told["right"] == [0.5, 0, 0, 0, 0]      # of the first pass, with what is revealed afterwards
