"""Block diffusion drafts its head's block, cut by the budget, the stop rule and its cost."""

from dataclasses import replace

import pytest

from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.what.block_diffusion import BlockDiffusion, profitable_length
from specdec_lib.when.confidence import BelowConfidence
from tests.worlds import PROMPT, network_kit

SESSION = begin(PROMPT, 30)


def part(**values):
    return network_kit(None).part("block-diffusion", **values)


def test_it_drafts_the_heads_block_in_one_forward():
    drafter = part()
    draft = drafter(SESSION, Budget(9), NO_DICE)
    block = part().head(PROMPT, 4)
    assert draft.tokens == block.tokens
    assert draft.confidence == block.confidence
    assert draft.stats == block.stats
    assert draft.parents == (-1, 0, 1, 2)
    assert draft.q == ()
    assert draft.source == ("block-diffusion",) * 4
    assert drafter.head.forwards == 1


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_smaller_budget_gets_the_beginning_of_the_same_draft(depth):
    whole = part()(SESSION, Budget(4), NO_DICE)
    for budget in (Budget(depth), Budget(4, nodes=depth)):
        draft = part()(SESSION, budget, NO_DICE)
        assert draft.tokens == whole.tokens[:depth]
        assert draft.confidence == pytest.approx(whole.confidence[:depth], abs=1e-12)


def test_it_drafts_after_a_prompt_of_one_token():
    assert len(part()(begin((1,), 9), Budget(3), NO_DICE)) == 3


def test_the_stop_rule_reads_token_statistics_and_the_token_that_fired_stays():
    whole = part()(SESSION, Budget(4), NO_DICE)
    probs = [stat.prob for stat in whole.stats]
    for threshold in (0.55, 0.98, 0.985):
        cut = next((i for i, prob in enumerate(probs, 1) if prob < threshold), 4)
        assert len(part()(SESSION, Budget(4, stop=BelowConfidence(threshold)), NO_DICE)) == cut
    assert any(prob < 0.98 for prob in probs[:3])


def test_nothing_follows_an_end_token():
    whole = part()(SESSION, Budget(4), NO_DICE)
    ended = part()(replace(SESSION, end=frozenset(whole.tokens[1:2])), Budget(4), NO_DICE)
    assert ended == whole.keep(tuple(range(1 + whole.tokens.index(whole.tokens[1]))))


@pytest.mark.parametrize(("confidences", "seconds", "nodes"), [
    ((.9, .9, .9), (1, 1, 1, 1), 3),               # width is free
    ((.9, .9, .9), (1, 3, 5, 7), 0),               # each node costs more than the round
    ((.9, .2, .9), (1.0, 1.1, 1.5, 1.6), 1),       # 0.18 x 1.1 < 1.9 x 0.4; the rule stops there
    ((.9, .9, .1), (1.0, 1.1, 1.2, 1.3), 2),
    ((), (1,), 0)])
def test_a_draft_is_extended_while_tokens_per_second_rise(confidences, seconds, nodes):
    assert profitable_length(confidences, seconds.__getitem__) == nodes


def test_with_a_constant_cost_per_node_the_rule_finds_the_best_length():
    for cost in (.02, .05, .1, .2, .4):
        for confidences in ((.9, .8, .7, .6), (.5,) * 6, (.99, .3, .99), (.2, .2)):
            probs = [1.0]
            for confidence in confidences:
                probs.append(probs[-1] * confidence)
            rates = [sum(probs[:n + 1]) / (1.2 + cost * n) for n in range(len(probs))]
            # noqa: B023
            length = profitable_length(confidences, lambda n, cost=cost: 1.2 + cost * n)
            assert rates[length] == pytest.approx(max(rates))


def test_the_cut_uses_the_kits_curve_at_this_context_and_the_drafting_cost():
    calls = []

    def curve(width, context):
        calls.append((width, context))
        return float(width)

    kit = replace(network_kit(None), cost=curve)
    whole = kit.part("block-diffusion")(SESSION, Budget(4), NO_DICE)
    assert len(whole) == 4
    assert not calls
    cut = kit.part("block-diffusion", cut=True, drafting=.5)(SESSION, Budget(4), NO_DICE)
    assert cut == whole.keep(tuple(range(profitable_length(whole.confidence, lambda n: 1.5 + n))))
    assert len(cut) < 4
    assert {context for _, context in calls} == {len(PROMPT)}
    assert (1, 5) in calls
    assert (2, 5) in calls


def test_the_block_length_can_be_set():
    assert len(part(block=6)(SESSION, Budget(9), NO_DICE)) == 6


def test_a_cost_below_zero_is_refused():
    with pytest.raises(Refusal, match="got -1"):
        BlockDiffusion(None, None, -1)


def test_its_lattice_has_the_candidates_of_each_slot_before_the_correction():
    lattice, block = part().lattice(SESSION, 3), part().head(PROMPT, 3)
    assert lattice.ids.tolist() == block.lattice.ids.tolist()
    assert lattice.logp.tolist() == block.lattice.logp.tolist()
    one = part().lattice(SESSION, 3, 1)
    assert one.ids.tolist() == lattice.ids[:, :1].tolist()
    assert one.logp.shape == (3, 1)


def test_a_lattice_costs_no_walk():
    drafter = part()
    drafter.head.walk = None
    assert len(drafter.lattice(SESSION, 3).ids) == 3
    assert drafter.head.forwards == 1


def test_a_lattice_is_no_longer_than_the_block():
    assert len(part().lattice(SESSION, 9).ids) == 4 == len(part()(SESSION, Budget(9), NO_DICE))
    with pytest.raises(ValueError, match="4.*0"):
        part().lattice(SESSION, 0)
