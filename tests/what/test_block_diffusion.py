"""Block diffusion drafts its head's walk, as far as the budget, the stop rule and the time it costs allow."""

from dataclasses import replace

import pytest

from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.what.block_diffusion import BlockDiffusion, paying
from specdec_lib.when.confidence import Unsure
from tests.worlds import PROMPT, network_kit

SESSION = begin(PROMPT, 30)


def part(**values):
    return network_kit(None).part("block-diffusion", **values)


def test_it_drafts_the_heads_walk_in_one_forward():
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
        assert draft.confidence == pytest.approx(whole.confidence[:depth],
                                                                                          abs=1e-12)


def test_a_prompt_of_one_token_is_drafted_for():
    assert len(part()(begin((1,), 9), Budget(3), NO_DICE)) == 3


def test_the_stop_rule_hears_the_sights_and_the_node_that_fired_stays():
    whole = part()(SESSION, Budget(4), NO_DICE)
    probs = [stat.prob for stat in whole.stats]
    for threshold in (0.55, 0.75, 0.95):
        cut = next((i for i, prob in enumerate(probs, 1) if prob < threshold), 4)
        assert len(part()(SESSION, Budget(4, stop=Unsure(threshold)), NO_DICE)) == cut
    assert any(prob < 0.95 for prob in probs[:3])


def test_nothing_stands_behind_an_end_token():
    whole = part()(SESSION, Budget(4), NO_DICE)
    ended = part()(replace(SESSION, end=frozenset(whole.tokens[1:2])), Budget(4), NO_DICE)
    assert ended == whole.keep(tuple(range(1 + whole.tokens.index(whole.tokens[1]))))


@pytest.mark.parametrize(("confidences", "seconds", "nodes"), [
    ((.9, .9, .9), (1, 1, 1, 1), 3),               # width is free
    ((.9, .9, .9), (1, 3, 5, 7), 0),               # each node costs more than the round
    ((.9, .2, .9), (1.0, 1.1, 1.5, 1.6), 1),       # 0.18 x 1.1 < 1.9 x 0.4, and nothing is looked at behind it
    ((.9, .9, .1), (1.0, 1.1, 1.2, 1.3), 2),
    ((), (1,), 0)])
def test_a_draft_is_extended_while_the_tokens_per_second_rise(confidences, seconds, nodes):
    assert paying(confidences, seconds.__getitem__) == nodes


def test_the_rule_finds_the_best_length_where_each_node_costs_the_same():
    for price in (.02, .05, .1, .2, .4):
        for confidences in ((.9, .8, .7, .6), (.5,) * 6, (.99, .3, .99), (.2, .2)):
            probs = [1.0]
            for confidence in confidences:
                probs.append(probs[-1] * confidence)
            rates = [sum(probs[:n + 1]) / (1.2 + price * n) for n in range(len(probs))]
            assert rates[paying(confidences, lambda n: 1.2 + price * n)] == pytest.approx(max(rates))  # noqa: B023


def test_the_cut_takes_the_kits_curve_at_this_context_and_the_cost_of_drafting():
    asked = []

    def curve(width, context):
        asked.append((width, context))
        return 1 + .3 * (width - 1)

    kit = replace(network_kit(None), cost=curve)
    whole = kit.part("block-diffusion")(SESSION, Budget(4), NO_DICE)
    assert len(whole) == 4
    assert not asked
    cut = kit.part("block-diffusion", cut=True, drafting=.5)(SESSION, Budget(4), NO_DICE)
    assert cut == whole.keep(tuple(range(paying(whole.confidence, lambda n: 1.5 + .3 * n))))
    assert len(cut) < 4
    assert {context for _, context in asked} == {len(PROMPT)}
    assert (1, 5) in asked
    assert (2, 5) in asked


def test_a_block_of_another_length_may_be_asked_for():
    assert len(part(block=6)(SESSION, Budget(9), NO_DICE)) == 6


def test_a_cost_below_zero_is_refused():
    with pytest.raises(Refusal, match="cost in plain forwards, 0 or more, got -1"):
        BlockDiffusion(None, None, -1)


def test_its_lattice_holds_the_candidates_of_each_slot_before_the_correction():
    lattice, block = part().lattice(SESSION, 3), part().head(PROMPT, 3)
    assert lattice.ids.tolist() == block.lattice.ids.tolist()
    assert lattice.logp.tolist() == block.lattice.logp.tolist()
    one = part().lattice(SESSION, 3, 1)
    assert one.ids.tolist() == lattice.ids[:, :1].tolist()
    assert one.logp.shape == (3, 1)


def test_a_lattice_is_no_longer_than_the_block():
    assert len(part().lattice(SESSION, 9).ids) == 4 == len(part()(SESSION, Budget(9), NO_DICE))
    with pytest.raises(ValueError, match="1 to 4 tokens, 0 were asked for"):
        part().lattice(SESSION, 0)
