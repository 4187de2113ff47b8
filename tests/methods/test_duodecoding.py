"""DuoDecoding: lossless with one and several sequences; several reach the right first token more often."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.loop import decode
from specdec_lib.models.table import Table
from tests.methods.parallel import ADVERSARIES, greedy_on_a_script, real_kit
from tests.worlds import PROMPT, TARGET, WARM, kit, run, true_law

ABLATIONS = [f"depth={depth}, most={most}" for depth in (1, 2, 4, 6) for most in (1, 8)]
FLAT = Table({(): (.22, .21, .2, .19, .18)})       # every first token competes


def last(spec, world, target=TARGET, tokens=60, seed=0, sampling=WARM):
    *_, session = decode(PROMPT, target, *catalog.build(spec, world), max_new_tokens=tokens, sampling=sampling,
                         dice=Dice(seed))
    return session


@pytest.mark.parametrize("values", ABLATIONS)
def test_every_ablation_keeps_the_target_distribution(values):
    dist = every_outcome(lambda dice: run(catalog.build(f"duodecoding({values})", kit()), dice))
    assert distance(dist, true_law()) < 1e-12


@pytest.mark.parametrize("draft", ADVERSARIES.values(), ids=ADVERSARIES)
def test_no_drafter_moves_the_distribution(draft):
    world = replace(kit(), draft=draft)
    dist = every_outcome(lambda dice: run(catalog.build("duodecoding(depth=4)", world), dice, tokens=4))
    assert distance(dist, true_law(tokens=4)) < 1e-12


@pytest.mark.parametrize("other", ["svip", "adaedl", "match"])
def test_other_policies_and_rules_keep_it_too(other):
    dist = every_outcome(lambda dice: run(catalog.build(f"duodecoding(depth=4)@{other}", kit()), dice, tokens=3))
    assert distance(dist, true_law()) < 1e-12


def test_a_policy_stops_the_sequences():
    stopped, free = (last(f"duodecoding@svip(depth=6, h={h})", kit()) for h in (0.0, 9.0))
    assert all(one.ahead.tokens == one.ahead.branches for one in stopped.rounds)
    assert any(one.ahead.tokens > one.ahead.branches for one in free.rounds)


def test_the_sequences_of_a_round_share_its_budget():
    world = replace(kit(), target=FLAT, draft=FLAT)
    ahead = [one.ahead for one in last("duodecoding(depth=12)", world, FLAT).rounds[:8]]
    assert {(one.branches, one.tokens) for one in ahead} == {(4, 12)}


def test_several_sequences_give_more_tokens_a_forward_where_first_tokens_compete():
    world = replace(kit(), target=FLAT, draft=FLAT)
    many, one = (sum(len(last(f"duodecoding(depth=12, most={most})", world, FLAT, seed=seed).rounds)
                     for seed in range(5)) for most in (8, 1))
    assert many < one


def test_the_first_draft_has_one_token():
    when = catalog.build("duodecoding", kit()).when
    assert when(replace(last("ar", kit(), tokens=1), rounds=()), Dice(0)).depth == 1


def test_greedily_it_writes_the_targets_text_whatever_the_drafter_says():
    greedy_on_a_script("duodecoding(depth=6)", "duodecoding(depth=4, most=1)")


def test_it_drafts_in_a_process_what_it_drafts_in_turn():
    here, there = (last(f"duodecoding(depth=4, workers='{kind}')", kit(), seed=2).output
                   for kind in ("inline", "process"))
    assert here == there


def test_with_one_sequence_it_is_pearl_greedily():
    mine, pearl = (last(spec, kit(None), sampling=None) for spec in ("duodecoding(depth=3, most=1)", "pearl(depth=3)"))
    assert [one.verdict for one in mine.rounds] == [one.verdict for one in pearl.rounds]
    assert [one.ahead for one in mine.rounds] == [one.ahead for one in pearl.rounds]


def test_on_the_real_model_it_writes_plain_decodings_tokens():
    world = real_kit()
    assert world("duodecoding(depth=4)", 32) == world("ar", 32)
