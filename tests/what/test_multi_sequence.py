"""Multi-sequence: the two-token rule, a fair share of the budget, greedy chains."""

import pytest

from specdec_lib.dice import Dice
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.types import NO_DICE, ROOT, Budget, Refusal
from specdec_lib.what.multi_sequence import MultiSequence, divisor_below, sequences
from tests.worlds import WARM

# after token 3: .4, .3, .2, .1; the main path 0 goes on with probability .6, so both of its tokens have .24
WORLD = Table({(): (.4, .3, .2, .1), (0,): (.2, .1, .6, .1), (1,): (.1, .1, .1, .7), (2,): (.9, .05, .03, .02)})


def chains(draft):
    return [tuple(draft.tokens[node] for node in draft.path(end)) for end in range(len(draft))
            if end not in draft.children]


@pytest.mark.parametrize(("first", "second", "k"), [
    ([.4, .3, .2, .1], .6, 2), ([.4, .3, .2, .1], .4, 3), ([.4, .3, .2, .1], .2, 4), ([.4, .3, .2, .1], .75, 1),
    ([.4, .2, .2], .5, 1), ([.5, .1, .05, .3], .4, 1), ([1.0, 0.0], 0.0, 1)])
def test_a_sequence_more_for_each_rank_whose_first_token_beats_two_tokens_of_the_main_path(first, second, k):
    assert sequences(first, second) == k


@pytest.mark.parametrize(("most", "budget", "k"), [(5, 16, 4), (8, 24, 8), (7, 24, 6), (5, 12, 4), (5, 7, 1),
                                                   (9, 4, 4)])
def test_the_number_divides_the_budget(most, budget, k):
    assert divisor_below(most, budget) == k


def test_two_sequences_of_half_the_budget_from_the_likeliest_first_tokens():
    draft = MultiSequence(WORLD)(begin((3,), 20), Budget(6), NO_DICE)
    assert sorted(chains(draft)) == [(0, 2, 0), (1, 3, 0)]
    assert [draft.tokens[node] for node in draft.children[ROOT]] == [0, 1]


def test_one_sequence_has_the_whole_budget():
    assert chains(MultiSequence(WORLD, 1)(begin((3,), 20), Budget(6), NO_DICE)) == [(0, 2, 0, 2, 0, 2)]
    assert chains(MultiSequence(WORLD)(begin((3,), 20), Budget(1), NO_DICE)) == [(0,)]


def test_sequences_of_one_token_hold_no_second_one():
    assert chains(MultiSequence(WORLD)(begin((3,), 20), Budget(2), NO_DICE)) == [(0,), (1,)]


def test_every_node_is_deterministic_whatever_the_random_numbers():
    session = begin((3,), 20, sampling=WARM)
    drafts = [MultiSequence(WORLD)(session, Budget(6), Dice(seed)) for seed in range(5)]
    assert len({draft.tokens for draft in drafts}) == 1
    assert not any(drafts[0].q)


def test_several_sequences_cost_one_forward_more_than_their_length():
    seen = []

    class Counting(Table):
        def __call__(self, tokens, draft):
            seen.append(len(draft))
            return super().__call__(tokens, draft)

    MultiSequence(Counting(WORLD.rows))(begin((3,), 20), Budget(8), NO_DICE)
    assert seen == [0, 1, 3, 5, 7]


def test_a_rule_stops_each_sequence_for_itself():
    def stop(trail):
        return trail[-1].first > .65

    draft = MultiSequence(WORLD)(begin((3,), 20), Budget(8, stop=stop), NO_DICE)
    assert sorted(chains(draft)) == [(0, 2, 0), (1, 3)]


def test_no_sequence_is_refused():
    with pytest.raises(Refusal, match="at least 1 sequence"):
        MultiSequence(WORLD, 0)
