"""The method specdiff2: several chains from one drafter forward, of which the target selects one."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.how.match import Match
from specdec_lib.loop import decode
from specdec_lib.types import NO_DICE, Refusal
from tests.worlds import PROMPT, SHAPE, WARM, network_kit, random_diffusion, run


def decoded(spec: str, sampling=None, dice=NO_DICE, tokens: int = 30):
    kit = network_kit(sampling)
    method = catalog.build(spec, kit)
    *_, last = decode(PROMPT, kit.target, *method, max_new_tokens=tokens, sampling=sampling, dice=dice)
    return last, kit, method


@pytest.mark.parametrize("spec", ["specdiff2", "specdiff2(chains=1)", "specdiff2(depth=6, chains=8, nodes=20)",
                                  "specdiff2(temperature=2.0, window=16)"])
@pytest.mark.parametrize(("sampling", "dice"), [(None, NO_DICE), (WARM, Dice(4))], ids=["greedy", "sampling"])
def test_the_output_is_plain_decodings_and_a_round_costs_one_forward_of_each(spec, sampling, dice):
    last, kit, method = decoded(spec, sampling, dice)
    plain = run(catalog.build("ar", network_kit(sampling)), dice, sampling, 30, network_kit().target)
    assert last.output == plain
    assert kit.target.forwards == 1 + len(last.rounds)
    assert method.what.drafter.head.forwards == sum(len(round.draft) > 0 for round in last.rounds)


def test_chains_share_the_nodes_and_one_chain_equals_the_plain_diffusion_draft():
    wide, *_ = decoded("specdiff2(depth=4, chains=4, nodes=9)")
    assert max(len(round.draft) for round in wide.rounds) > 4
    assert max(len(round.draft) for round in wide.rounds) <= 9
    assert any(len(round.draft.children[-1]) > 1 for round in wide.rounds if len(round.draft))
    one, plain = (decoded(spec)[0] for spec in ("specdiff2(depth=4, chains=1, nodes=4)", "diffusion-draft(depth=4)"))
    assert [round.draft.tokens for round in one.rounds] == [round.draft.tokens for round in plain.rounds]


def test_more_chains_take_fewer_target_forwards_and_match_on_the_whole_trie_fewer_still():
    specs = ("specdiff2(chains=1)", "specdiff2(chains=8, nodes=64)", "specdiff2(chains=8, nodes=64, how='match')")
    done = [decoded(spec, WARM, Dice(4), 60)[0] for spec in specs]
    rounds = [len(last.rounds) for last in done]
    assert len({last.output for last in done}) == 1
    assert rounds == sorted(set(rounds), reverse=True)


def test_the_aligned_drafter_is_used_if_available_and_the_plain_one_otherwise_or_by_name():
    plain = network_kit()
    both = replace(plain, checkpoints={**plain.checkpoints, "diffusion-lm-aligned": random_diffusion(SHAPE, (1, 2), 1)})

    def drafts_from(kit, spec="specdiff2"):
        return tuple(catalog.build(spec, kit).what.drafter.head.ids.tolist())

    assert drafts_from(plain) == (0, 2)
    assert drafts_from(both) == (1, 2)
    assert drafts_from(both, "specdiff2(weights='diffusion-lm')") == (0, 2)
    with pytest.raises(Refusal, match="specdec train diffusion-lm-aligned"):
        drafts_from(plain, "specdiff2(weights='diffusion-lm-aligned')")


def test_the_rule_can_be_another_one_for_trees():
    assert isinstance(catalog.build("specdiff2(how='match')", network_kit()).how, Match)
    with pytest.raises(Refusal):
        catalog.build("specdiff2(how='nobody')", network_kit())
