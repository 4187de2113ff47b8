"""Double: lossless with every ablation, above the speed ratio where text repeats, PEARL where nothing does."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.loop import decode
from tests.methods.parallel import ADVERSARIES, decode_script, greedy_on_a_script, real_kit
from tests.worlds import PROMPT, TARGET, WARM, kit, run, true_law

HALVES = [f"inner={inner}, guide={guide}" for inner in (True, False) for guide in (True, False)]
GUIDE = "suffix-automaton"                         # source of the nodes that the guide put
TURNS = tuple(range(3, 13)) * 8                    # a text that repeats from the eleventh token on


def last(spec, world, tokens=60, seed=0):
    *_, session = decode(PROMPT, TARGET, *catalog.build(spec, world), max_new_tokens=tokens, sampling=WARM,
                         dice=Dice(seed))
    return session


@pytest.mark.parametrize("values", HALVES)
@pytest.mark.parametrize("depth", [1, 2])
def test_every_ablation_keeps_the_target_distribution(depth, values):
    dist = every_outcome(lambda dice: run(catalog.build(f"double(depth={depth}, {values})", kit()), dice))
    assert distance(dist, true_law()) < 1e-12


@pytest.mark.parametrize("draft", ADVERSARIES.values(), ids=ADVERSARIES)
def test_no_drafter_moves_the_distribution(draft):
    world = replace(kit(), draft=draft)
    dist = every_outcome(lambda dice: run(catalog.build("double(depth=2)", world), dice))
    assert distance(dist, true_law()) < 1e-12


@pytest.mark.parametrize("spec", ["double(depth=2)@svip", "double(depth=2)@adaedl", "double(depth=1)@match",
                                  "double(depth=1, retriever='token-recycling')"])
def test_other_policies_rules_and_retrievers_keep_it_too(spec):
    dist = every_outcome(lambda dice: run(catalog.build(spec, kit()), dice))
    assert distance(dist, true_law()) < 1e-12


def test_with_both_retrievals_off_it_is_pearl_round_for_round():
    mine, pearl = map(decoded, ("double(depth=3, inner=False, guide=False)", "pearl(depth=3)"))
    assert [one.verdict for one in mine.rounds] == [one.verdict for one in pearl.rounds]
    assert [one.ahead[:5] for one in mine.rounds] == [one.ahead[:5] for one in pearl.rounds]


def decoded(spec):
    *_, session = decode(PROMPT, TARGET, *catalog.build(spec, kit(None)), max_new_tokens=60)
    return session


@pytest.mark.parametrize("forwards", [1, 2, 4])
def test_where_text_repeats_a_target_forward_gives_more_tokens_than_the_drafter_has_forwards(forwards):
    session = decode_script(f"double(depth={forwards}, guide=False)", TURNS, TURNS, 70)
    late = [len(one.verdict.tokens) for one in session.rounds if len(one.draft)][-3:-1]
    assert min(late) > forwards
    pearl = decode_script(f"pearl(depth={forwards})", TURNS, TURNS, 70)
    assert max(len(one.verdict.tokens) for one in pearl.rounds[1:]) <= forwards      # prefill gives one more


def test_where_nothing_repeats_it_takes_the_rounds_of_pearl():
    text = tuple(range(3, 30))
    partly = tuple(31 if place % 5 == 3 else token for place, token in enumerate(text))
    for draft in (text, partly):
        mine, pearl = (decode_script(spec, text, draft, 25) for spec in ("double(depth=3)", "pearl(depth=3)"))
        assert [one.verdict for one in mine.rounds] == [one.verdict for one in pearl.rounds]


def test_after_a_rejection_the_guides_branch_goes_on():
    """Where the drafter is wrong and retrieval right, the round of the error gives tokens behind it."""
    wrong = tuple(31 if place in (25, 38, 51) else token for place, token in enumerate(TURNS))
    guided, alone = (decode_script(f"double(depth=3, inner=False, guide={guide})", TURNS, wrong, 60)
                     for guide in (True, False))
    assert len(guided.rounds) < len(alone.rounds)
    hits = [one for one in guided.rounds if any(one.draft.source[node] == GUIDE for node in one.verdict.path)]
    after = [one for one in hits if one.draft.source[0] != GUIDE]
    assert after, "a branch beside pending tokens was accepted"
    assert all(len(one.verdict.tokens) > 1 for one in after)


def test_guidance_is_no_drafted_token_and_every_drafted_one_is_accounted_for():
    for seed in range(4):
        session = last("double(depth=2)", kit(), 40, seed)
        assert all(one.ahead.discarded >= 0 for one in session.rounds)
        assert sum(one.ahead.discarded for one in session.rounds) <= sum(one.ahead.tokens for one in session.rounds) + 9


def test_a_policy_stops_the_drafter():
    stopped, free = (last(f"double@svip(depth=6, h={h})", kit()) for h in (0.0, 9.0))
    assert all(one.ahead.tokens <= 1 for one in stopped.rounds)
    assert any(one.ahead.tokens > 1 for one in free.rounds)


def test_greedily_it_writes_the_targets_text_whatever_the_drafter_says():
    greedy_on_a_script("double(depth=2)", "double(depth=2, guide=False)", "double(depth=3, inner=False)")


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_it_drafts_beside_the_target_what_it_drafts_in_turn(kind):
    here, there = (last(f"double(depth=2, workers='{one}')", kit(), seed=2).output for one in ("inline", kind))
    assert here == there


def test_on_the_real_model_it_writes_plain_decodings_tokens():
    world = real_kit()
    assert world("double(depth=4)", 32) == world("ar", 32)


@pytest.mark.parametrize("retriever", ["token-recycling", "prompt-lookup", "feedback-retrieval"])
def test_a_retriever_that_learns_from_rounds_decodes_a_long_text(retriever):
    """First tokens are tested without a row of their own, and what reads the rounds must not look for one."""
    session = decode_script(f"double(depth=2, retriever='{retriever}')", TURNS, TURNS, 60)
    assert session.output == TURNS[:60]
