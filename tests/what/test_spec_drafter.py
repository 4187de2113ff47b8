"""The block drafter as a part: a chain within its budget, cut at an end, of the session's own source."""

from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.loop import begin
from specdec_lib.seq2seq.alphabet import BEGIN, source_ids
from specdec_lib.types import NO_DICE, Budget, Refusal
from tests.seq2seq.worlds import SOURCE, kit
from tests.worlds import network_kit

TOKENS = (BEGIN, 10, 21)


def draft(world, budget=Budget(10), source=SOURCE, tokens=TOKENS, end=frozenset()):
    return world.part("spec-drafter")(begin(tokens, 60, end, source=source), budget, NO_DICE)


@pytest.fixture
def world():
    found = kit()
    found.target.net.float()                       # stored drafters are float32
    return found


def test_a_draft_is_a_deterministic_chain_of_each_slots_best_token(world):
    found = draft(world)
    assert len(found) == 10
    assert found.parents == tuple(range(-1, 9))
    assert not found.q
    head = world.part("spec-drafter").head
    with torch.inference_mode():
        logits = head.logits(SOURCE, TOKENS, 10)
    assert list(found.tokens) == logits.argmax(-1).tolist()
    assert found.confidence == pytest.approx(logits.softmax(-1).amax(-1).tolist(), abs=1e-5)


@pytest.mark.parametrize("budget", [Budget(), Budget(3), Budget(9, nodes=4), Budget(60)])
def test_a_draft_stays_within_its_budget_and_the_trained_block(world, budget):
    assert len(draft(world, budget)) == min(budget.depth, budget.size, 25)


def test_more_slots_than_the_trained_block_are_refused_where_they_are_asked_for_by_name(world):
    assert world.part("spec-drafter", k=25).head.block == 25
    with pytest.raises(Refusal, match="at most 25 slots"):
        world.part("spec-drafter", k=26)


def test_nothing_follows_an_end_token(world):
    whole = draft(world).tokens
    assert draft(world, end=frozenset({whole[3]})).tokens == whole[:whole.index(whole[3]) + 1]


def test_another_source_drafts_another_block_and_then_the_first_again(world):
    part, other = world.part("spec-drafter"), source_ids("tomato")
    blocks = [part(begin(TOKENS, 60, source=source), Budget(25), NO_DICE).tokens for source in (SOURCE, other, SOURCE)]
    assert blocks[0] == blocks[2]
    assert blocks[0] != blocks[1]


def test_a_target_that_reads_no_source_is_refused(world):
    with pytest.raises(Refusal, match="reads no source"):
        replace(network_kit(), checkpoints=world.checkpoints).part("spec-drafter")
    assert catalog.lacking(catalog.part_card("spec-drafter"), network_kit()).startswith("the checkpoint g2p-drafter")
