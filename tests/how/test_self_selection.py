"""Of several chains the one of the largest expected streak is kept."""

import pytest

from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.how.self_selection import SelfSelection, best_chain, expected_streaks
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.trees import deterministic_tree
from specdec_lib.types import NO_DICE, Budget, Draft, Method
from tests.worlds import PROMPT, TARGET, WARM, Scripted, run, true_law

CHAINS = [(0, 0), (1, 2), (2, 1)]
SESSION = begin(PROMPT, 9, sampling=WARM)


def p(*tokens) -> list[float]:
    return TARGET.logits(PROMPT + tokens).exp().tolist()


def verdict_of(rule, draft, dice, session=SESSION):
    return rule(session, draft, TARGET(PROMPT, draft), dice)


def test_a_streak_adds_up_the_probabilities_of_reaching_each_token_of_its_chain():
    draft = deterministic_tree(CHAINS, 9)
    found = expected_streaks(SESSION, draft, TARGET(PROMPT, draft))
    leaves = {draft.path(node): found[node] for node in range(len(draft)) if node not in draft.children}
    want = [p()[a] + p()[a] * p(a)[b] for a, b in CHAINS]
    assert list(leaves.values()) == pytest.approx(want, abs=1e-12)
    assert best_chain(SESSION, draft, TARGET(PROMPT, draft)) == draft.path(list(leaves)[want.index(max(want))][-1])


def test_a_chain_that_goes_on_well_is_kept_before_one_whose_first_token_is_likelier():
    draft = deterministic_tree([(0, 0), (1, 2)], 9)
    for after_zero, kept in ((.01, [1, 2]), (.98, [0, 0])):
        rest = (1 - after_zero) / 2
        world = Table({(): (.5, .45, .05), (2, 0): (after_zero, rest, rest), (2, 1): (.01, .01, .98)})
        assert [draft.tokens[node] for node in best_chain(SESSION, draft, world((2,), draft))] == kept


def test_a_token_is_kept_with_the_targets_probability_and_replaced_by_the_target_without_it():
    draft = deterministic_tree([(2,)], 9)
    def first(dice):
        verdict = verdict_of(SelfSelection(), draft, dice)
        return len(verdict.path), verdict.tokens[0]

    dist = every_outcome(first)
    kept = dist[1, 2]
    assert kept == pytest.approx(p()[2], abs=1e-12)
    without = [p()[0] / (1 - p()[2]), p()[1] / (1 - p()[2])]
    assert [dist[0, token] / (1 - kept) for token in (0, 1)] == pytest.approx(without, abs=1e-12)


def test_greedy_decoding_walks_the_trie_by_argmax():
    text = (5, 6, 7, 8)
    chains = [(5, 9, 9, 9), (5, 6, 3, 3), (5, 6, 7, 1), (4, 6, 7, 8)]
    draft, session = deterministic_tree(chains, 99), begin((1, 2), 9)
    scores = Scripted((1, 2), text)((1, 2), draft)
    verdict = SelfSelection()(session, draft, scores, NO_DICE)
    assert verdict == Match()(session, draft, scores, NO_DICE)
    assert verdict.tokens == text
    assert expected_streaks(session, draft, scores)[verdict.path[-1]] == 3.0


def test_with_the_same_random_numbers_the_whole_trie_is_never_followed_less_far():
    draft = deterministic_tree([(a, b) for a in range(3) for b in range(2)], 99)
    pairs = [[len(verdict_of(rule, draft, Dice(seed)).path) for rule in (SelfSelection(), Match())]
             for seed in range(60)]
    assert all(one <= other for one, other in pairs)
    assert any(one < other for one, other in pairs)


def test_the_draws_are_plain_decodings_own():
    draft = deterministic_tree(CHAINS, 99)
    for seed in range(20):
        one, other = verdict_of(SelfSelection(), draft, Dice(seed)), verdict_of(Match(), Draft(), Dice(seed))
        assert one.tokens[0] == other.tokens[0]


def test_the_distribution_is_kept_whatever_was_drafted():
    for chains in (CHAINS, [(0,), (1, 1)], [(2, 2)], []):
        method = Method(lambda session, dice: Budget(2, 3),
                        lambda session, budget, dice, chains=chains: deterministic_tree(
                            [chain[:budget.depth] for chain in chains], budget.size), SelfSelection())
        assert distance(every_outcome(lambda dice, method=method: run(method, dice)), true_law()) < 1e-12

