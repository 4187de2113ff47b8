"""Relaxed verification on scores made by hand: each rule, each guard, and the exact output distribution."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.acceptance import ExactOnly, RankMargin, Typical
from specdec_lib.cards import TokenizerFacts
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.how.relaxed import Guards, Relaxed, inside_fence, make
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.sampling import Sampling
from specdec_lib.scores import Scores
from specdec_lib.trees import deterministic_chain, prune
from specdec_lib.types import NO_DICE, ROOT, Draft, Method, Refusal, Verdict
from specdec_lib.when.fixed import Fixed
from tests.worlds import WARM, Noted, kit, run, true_law

COPY = "suffix-automaton"
BEST, NEAR, FAR, END = 0, 1, 2, 3                  # probabilities .5, .3, .15, .05 unless a row says otherwise
ROW = (.5, .3, .15, .05)


def scores(*rows) -> Scores:
    """Probabilities by row; row 0 follows the context, row i + 1 node i."""
    return Scores(torch.tensor(rows, dtype=torch.float64).log())


def judge(how, draft, *rows, session=None, dice=NO_DICE) -> Verdict:
    return how(session or begin((9,), 20), draft, scores(*rows), dice)


def copied(*tokens) -> Draft:
    return deterministic_chain(tokens, COPY)


def relaxed(rule=None, **guards) -> Relaxed:
    return Relaxed(Match(), rule or RankMargin(3, 0.5), Guards(**guards))


# --- rules ----------------------------------------------------------------------------------------------------------

def test_a_copied_second_best_is_kept_where_the_next_token_confirms_it():
    verdict = judge(relaxed(), copied(NEAR, BEST), ROW, ROW, ROW)
    assert verdict == Verdict((0, 1), (NEAR, BEST, BEST))


def test_a_copied_token_too_far_from_the_best_ends_the_path():
    assert judge(relaxed(), copied(FAR, BEST), ROW, ROW, ROW) == Verdict((), (BEST,))
    assert judge(relaxed(RankMargin(3, 0.3)), copied(FAR, BEST), ROW, ROW, ROW).path == (0, 1)
    assert judge(relaxed(RankMargin(2, 0.3)), copied(FAR, BEST), ROW, ROW, ROW).path == ()


def test_the_typical_rule_keeps_more_where_the_target_is_unsure():
    flat, steep = (.26, .25, .25, .24), (.92, .04, .03, .01)
    assert judge(relaxed(Typical()), copied(FAR, BEST), flat, ROW, ROW).path == (0, 1)
    assert judge(relaxed(Typical()), copied(NEAR, BEST), steep, ROW, ROW).path == ()


def test_a_drafted_token_is_judged_strictly_under_every_rule():
    for rule in (RankMargin(4, 0.0), Typical(0.0)):
        drafted = deterministic_chain((NEAR, BEST), "draft-model")
        assert judge(relaxed(rule), drafted, ROW, ROW, ROW) == Verdict((), (BEST,))
        assert judge(relaxed(rule), deterministic_chain((NEAR, BEST)), ROW, ROW, ROW).path == ()
        assert judge(relaxed(rule), copied(NEAR, BEST), ROW, ROW, ROW).path == (0, 1)


def test_in_a_tree_of_two_sources_only_the_copied_nodes_are_judged_leniently():
    draft = Draft((NEAR, BEST), (ROOT, 0), source=("draft-model", COPY))
    assert judge(relaxed(), draft, ROW, ROW, ROW).path == ()
    assert judge(relaxed(), replace(draft, source=(COPY, "draft-model")), ROW, ROW, ROW).path == (0, 1)


def test_a_draft_without_a_copied_node_goes_to_the_strict_part():
    def strict(session, draft, scores, dice):
        return Verdict((), (7,))

    how = Relaxed(strict)
    assert judge(how, deterministic_chain((NEAR, BEST), "eagle"), ROW, ROW, ROW).tokens == (7,)
    assert judge(how, Draft(), ROW).tokens == (7,)
    assert judge(how, copied(BEST), ROW, ROW).tokens == (BEST, BEST)
    assert judge(Relaxed(strict, ExactOnly()), copied(BEST), ROW, ROW).tokens == (7,)


# --- guards ---------------------------------------------------------------------------------------------------------

def test_an_exchange_that_the_next_token_does_not_confirm_is_cut_and_the_targets_choice_is_kept():
    assert judge(relaxed(), copied(NEAR, FAR), ROW, ROW, ROW) == Verdict((), (BEST,))
    assert judge(relaxed(), copied(NEAR), ROW, ROW) == Verdict((), (BEST,))
    assert judge(relaxed(), copied(BEST, NEAR), ROW, ROW, ROW) == Verdict((0,), (BEST, BEST))
    assert judge(relaxed(confirm=False), copied(NEAR, FAR), ROW, ROW, ROW) == Verdict((0,), (NEAR, BEST))


def test_an_exchange_does_not_confirm_an_exchange():
    assert judge(relaxed(), copied(NEAR, NEAR, BEST), *[ROW] * 4).path == ()
    assert judge(relaxed(confirm=False), copied(NEAR, NEAR, BEST), *[ROW] * 4).path == (0, 1, 2)


@pytest.mark.parametrize(("most", "kept"), [(0, 0), (1, 2), (2, 4), (3, 6)])
def test_a_round_exchanges_no_more_tokens_than_allowed(most, kept):
    verdict = judge(relaxed(most=most), copied(*(NEAR, BEST) * 3), *[ROW] * 7)
    assert len(verdict.path) == kept
    assert verdict.tokens == (NEAR, BEST) * (kept // 2) + (BEST,)


@pytest.mark.parametrize("spared", [NEAR, BEST])
def test_a_spared_token_neither_replaces_nor_is_replaced(spared):
    assert judge(relaxed(never=frozenset({spared})), copied(NEAR, BEST), ROW, ROW, ROW) == Verdict((), (BEST,))
    assert judge(relaxed(never=frozenset({FAR})), copied(NEAR, BEST), ROW, ROW, ROW).path == (0, 1)


def test_told_so_the_guard_looks_at_the_drafted_token_alone():
    how = relaxed(never=frozenset({BEST}), either=False)
    assert judge(how, copied(NEAR, BEST), ROW, ROW, ROW).path == (0, 1)
    assert judge(relaxed(never=frozenset({NEAR}), either=False), copied(NEAR, BEST), ROW, ROW, ROW).path == ()


def test_a_spared_token_that_the_target_chose_itself_is_kept():
    assert judge(relaxed(never=frozenset({BEST})), copied(BEST, BEST), ROW, ROW, ROW).path == (0, 1)


@pytest.mark.parametrize("end", [NEAR, BEST])
def test_an_end_token_is_never_exchanged(end):
    session = begin((9,), 20, end=frozenset({end}))
    assert judge(relaxed(), copied(NEAR, BEST), ROW, ROW, ROW, session=session).path == ()
    assert judge(relaxed(), copied(NEAR, BEST), ROW, ROW, ROW).path == (0, 1)


def test_nothing_is_exchanged_inside_code():
    how, draft, fence = relaxed(fence=frozenset({5})), copied(NEAR, BEST), 5
    assert judge(how, draft, ROW, ROW, ROW, session=begin((9, fence, 8), 20)).path == ()
    assert judge(how, draft, ROW, ROW, ROW, session=begin((9, fence, 8, fence), 20)).path == (0, 1)
    assert inside_fence({5}, (5, 1, 5, 5))
    assert not inside_fence({5}, (5, 5))
    assert not inside_fence((), (5,))


def test_a_fence_within_the_draft_opens_code_and_closes_it():
    how = relaxed(fence=frozenset({BEST}))
    row = (.4, .35, .25, 1e-9)
    other = (1e-9, .5, .4, 1e-9)                   # here the choice is NEAR, and FAR is close to it
    assert judge(how, copied(BEST, FAR, NEAR), row, other, other, other).path == (0,)
    assert judge(how, copied(BEST, BEST, FAR, NEAR), row, row, other, other, other).path == (0, 1, 2, 3)


def test_the_kit_says_which_tokens_are_spared():
    facts = TokenizerFacts(frozenset({1}), frozenset({2}), frozenset({3}), frozenset({4}), vocab=9)
    how = make(replace(kit(), facts=facts))
    assert how.guards == Guards(frozenset({1, 2, 3, 4}), frozenset({4}))
    assert make(replace(kit(), facts=facts), spare=("digit",)).guards == Guards(frozenset({1, 3}))


# --- trees ----------------------------------------------------------------------------------------------------------

def test_in_a_tree_the_longer_path_wins_though_it_begins_with_an_exchange():
    draft = Draft((BEST, NEAR, BEST, BEST), (ROOT, ROOT, 1, 2), source=(COPY,) * 4)
    assert judge(relaxed(), draft, *[ROW] * 5) == Verdict((1, 2, 3), (NEAR, BEST, BEST, BEST))


def test_of_two_paths_of_one_length_the_likelier_wins():
    draft = Draft((BEST, NEAR, BEST, BEST), (ROOT, ROOT, 0, 1), source=(COPY,) * 4)
    sure = (.97, .01, .01, .01)
    assert judge(relaxed(), draft, *[ROW] * 5).path == (0, 2)              # .5 x .5 against .3 x .5
    assert judge(relaxed(), draft, ROW, ROW, sure, ROW, ROW).path == (1, 3)            # against .3 x .97


# --- the output distribution --------------------------------------------------------------------------------------

def chain(*tokens):
    return lambda session, budget, dice: copied(*tokens[:budget.depth])


def distribution_of(how, what):
    return every_outcome(lambda dice: run(Method(Fixed(2), what, how), dice))


def test_a_relaxed_chain_has_exactly_the_distribution_that_is_written_down():
    """Draft (1, 0) after 0: p(1) = .3, p(0 | 1) = .55; the rule holds for 1 beside .5."""
    start = Table({(9,): (.5, .3, .2), (9, 0): (.2, .5, .3), (9, 1): (.55, .25, .2), (9, 2): (.7, .1, .2),
                   (): (.4, .3, .3)})

    def once(dice):
        session = begin((9,), 20, sampling=WARM)
        return relaxed()(session, copied(1, 0), start((9,), copied(1, 0)), dice).tokens[0]

    dist = every_outcome(once)
    assert dist[1] == pytest.approx(.3 + .7 * .55, abs=1e-12)
    assert dist[0] == pytest.approx(.5 * .45, abs=1e-12)
    assert dist[2] == pytest.approx(.2 * .45, abs=1e-12)
    assert distance(dist, {0: .5, 1: .3, 2: .2}) == pytest.approx(.7 * .55, abs=1e-12)


@pytest.mark.parametrize("what", [chain(0, 1), chain(0, 2), chain(2, 1)], ids=["0 1", "0 2", "2 1"])
def test_the_strict_rule_is_off_by_nothing_and_the_others_by_more(what):
    assert distance(distribution_of(relaxed(ExactOnly()), what), true_law()) < 1e-12
    assert distance(distribution_of(relaxed(most=0), what), true_law()) < 1e-12
    for rule in (RankMargin(3, 0.3), Typical(0.09, 0.3)):
        assert distance(distribution_of(relaxed(rule), what), true_law()) > 0.01


@pytest.mark.parametrize("what", ["prompt-lookup", "suffix-automaton"])
def test_with_real_copiers_only_the_strict_rule_keeps_the_target_distribution(what):
    def dist(rule):
        def once(dice):
            world = kit()
            return run(Method(Fixed(2, 2, 3), world.part(what), world.part("relaxed", rule=rule)), dice, tokens=4)
        return every_outcome(once)

    target = true_law(tokens=4)
    assert distance(dist("strict"), target) < 1e-12
    assert distance(dist("rank-margin"), target) > 0.001
    assert distance(dist("typical"), target) > 0.001


def test_a_model_draft_keeps_the_target_distribution_under_every_rule():
    def once(dice):
        world = kit()
        how = world.part("relaxed", rule="typical", strict="rejection")
        return run(Method(Fixed(2, 2, 3), world.part("draft-model"), how), dice)
    assert distance(every_outcome(once), true_law()) < 1e-12


def trees(session, budget, dice):
    return prune(Draft((1, 0, 2, 1, 0), (ROOT, ROOT, 0, 1, 1), source=(COPY,) * 5), budget)


@pytest.mark.parametrize("sampling", [None, WARM], ids=["greedy", "sampling"])
def test_where_nothing_may_be_exchanged_it_emits_what_match_emits_token_for_token(sampling):
    for seed in range(20):
        outputs = {run(Method(Fixed(2, 3), trees, how), Dice(seed), sampling, 12)
                   for how in (Match(), relaxed(ExactOnly()), relaxed(most=0), relaxed(never=frozenset({0, 1, 2})))}
        assert len(outputs) == 1


def test_no_random_number_is_drawn_twice_though_some_paths_are_wasted():
    Noted.thrown = []
    run(Method(Fixed(2, 3), trees, relaxed(RankMargin(3, 0.1))), Noted(1), tokens=40)
    assert any("exchanged" in key for key in Noted.thrown)
    assert len(Noted.thrown) > 40
    assert len(set(Noted.thrown)) == len(Noted.thrown)


def test_at_temperature_zero_the_sessions_own_distribution_exchanges_nothing():
    own = replace(relaxed(), temperature=None)
    assert judge(own, copied(NEAR, BEST), ROW, ROW, ROW).path == ()
    assert judge(relaxed(), copied(NEAR, BEST), ROW, ROW, ROW).path == (0, 1)


def test_the_sessions_own_temperature_decides_how_near_is_near():
    cold, hot = (begin((9,), 20, sampling=Sampling(temperature=t)) for t in (0.25, 1.0))
    row = (.5, .3, .15, .05)                       # at 0.25 the second is (.3 / .5) ** 4 = .13 of the first
    own = replace(relaxed(confirm=False), temperature=None)
    assert not own.lenient(cold, copied(NEAR), scores(row, row), 0, BEST)
    assert own.lenient(hot, copied(NEAR), scores(row, row), 0, BEST)
    assert relaxed().lenient(cold, copied(NEAR), scores(row, row), 0, BEST)


@pytest.mark.parametrize("wrong", [{"rule": "kind"}, {"rank": 0}, {"margin": 2.0}, {"eps": -1.0}, {"most": -1},
                                   {"temperature": 0.0}, {"spare": ("code",)}, {"sources": "prompt-lookup"},
                                   {"sources": ()}, {"strict": "nothing-like-it"}])
def test_parameters_that_mean_nothing_are_refused(wrong):
    with pytest.raises(Refusal):
        make(kit(), **wrong)
    assert make(kit(), most=0).guards.most == 0, "no exchange is a choice"
