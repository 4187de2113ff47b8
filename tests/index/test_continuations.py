"""Trees of continuations against brute force: chances from counted occurrences, in the order of the whole path."""

import random

import pytest

from specdec_lib.cost.row_costs import RowCosts
from specdec_lib.index.continuations import MATCH, MOST, SHARES, GrowthLimits, best_continuation, followers, grow
from specdec_lib.index.static_store import GAP
from specdec_lib.index.suffix_automaton import SuffixAutomaton
from specdec_lib.index.trees import copy_probability
from specdec_lib.types import ROOT, Budget

LARGE = Budget(12, 8, 60)
TWICE = (1, 2, 3, 1, 2, 4, 1, 2)                   # 3 and 4 followed (1, 2) once each


def read(tokens):
    automaton = SuffixAutomaton()
    automaton.read(tuple(tokens))
    return automaton


def longest(tokens, **limits):
    """The tree after the longest repeated suffix."""
    text = read(tokens)
    return grow(text, next(text.repeated()), GrowthLimits(**{"budget": LARGE, **limits}))


def best(tokens, **limits):
    text = read(tokens)
    return best_continuation(text, text.repeated(), GrowthLimits(**{"budget": LARGE, **limits}))


def occurrences(tokens, part):
    return sum(tokens[i:i + len(part)] == part for i in range(len(tokens) - len(part) + 1))


def test_shares_count_the_occurrence_at_the_end_of_the_text():
    grown = longest(TWICE, rule=SHARES, budget=Budget(1, 8))
    assert sorted(zip(grown.tokens, grown.confidence, strict=True)) == [(3, 1 / 3), (4, 1 / 3)]
    assert grown.score == pytest.approx(2 / 3)
    assert grown.match == 2


def test_what_followed_once_has_a_share_of_one_half_and_all_behind_it_of_one():
    grown = longest((1, 2, 3, 4, 5, 1, 2), rule=SHARES, budget=Budget(3, 8))
    assert grown.tokens == (3, 4, 5)
    assert grown.confidence == (0.5, 1.0, 1.0)
    assert grown.chances == (0.5, 0.5, 0.5)


def test_by_match_what_followed_once_has_the_confidence_of_a_copy():
    grown = longest((1, 2, 3, 4, 5, 1, 2), rule=MATCH, budget=Budget(3, 8))
    assert grown.confidence == pytest.approx([copy_probability(n) for n in (2, 3, 4)])


def test_by_match_two_that_agree_are_surer_than_one_and_two_that_differ_less():
    once, agreed = longest((1, 2, 3, 1, 2)), longest((1, 2, 3, 1, 2, 3, 1, 2), budget=Budget(1, 8))
    doubt = 1 / copy_probability(5) - 1                                # the longest suffix has five tokens now
    assert agreed.match == 5
    assert agreed.confidence[0] == pytest.approx(1 / (1 + doubt))
    assert longest(TWICE).confidence[0] == pytest.approx(1 / (2 + 1 / copy_probability(2) - 1))
    assert longest(TWICE).confidence[0] < once.confidence[0] < agreed.confidence[0]


@pytest.mark.parametrize("rule", [SHARES, MATCH])
@pytest.mark.parametrize("letters", [2, 3])
def test_every_chance_is_counted_in_the_text(rule, letters):
    rng = random.Random(letters)
    for _ in range(30):
        tokens = tuple(rng.randrange(letters) for _ in range(rng.randrange(4, 24)))
        text = read(tokens)
        for suffix in text.repeated():
            end = tokens[len(tokens) - suffix.length:]
            grown = grow(text, suffix, GrowthLimits(Budget(3, 8, 60), rule=rule))
            found = {path_of(grown, node): grown.confidence[node] for node in range(len(grown.tokens))}
            assert found == pytest.approx(by_brute_force(tokens, end, rule, letters))


def by_brute_force(tokens, end, rule, letters, path=(), new=()):
    """The chance of each path of up to three tokens after the end of a text, given the path before its last token.

    `new` is what was drafted since the end of the text, which a path may reach again.
    """
    if len(path) == 3:
        return {}
    if not any(occurrences(tokens, (*end, *new, token)) for token in range(letters)):
        new = ()
    doubt = (not new) if rule == SHARES else 1 / copy_probability(len(end) + len(path)) - 1
    before = occurrences(tokens, (*end, *new)) - (not new)
    out = {}
    for token in range(letters):
        times = occurrences(tokens, (*end, *new, token))
        if times:
            out[*path, token] = min(1.0, times / (before + doubt))
            out |= by_brute_force(tokens, end, rule, letters, (*path, token), (*new, token))
    return out


def test_a_loop_goes_on_beyond_the_end_of_the_text():
    assert longest((5, 1, 2, 1, 2), budget=Budget(6, 1)).tokens == (1, 2, 1, 2, 1, 2)
    assert longest((7, 8, 7), budget=Budget(5, 1)).tokens == (8, 7, 8, 7, 8)


def test_of_a_long_loop_a_few_suffixes_are_continued():
    text, asked = read((7,) * 100), []
    suffixes = (asked.append(suffix.length) or suffix for suffix in text.repeated())
    assert best_continuation(text, suffixes, GrowthLimits(Budget(3, 1))).tokens == (7, 7, 7)
    assert asked == list(range(99, 99 - MOST, -1))


def path_of(grown, node):
    return () if node == ROOT else (*path_of(grown, grown.parents[node]), grown.tokens[node])


def test_nodes_join_by_the_chance_of_their_whole_path_parents_first():
    rng = random.Random(1)
    text = read(rng.randrange(3) for _ in range(80))
    *_, shortest = text.repeated()
    grown = grow(text, shortest, GrowthLimits(Budget(7, 3, 20)))
    assert len(grown.tokens) == 20
    assert list(grown.chances) == sorted(grown.chances, reverse=True)
    for node, parent in enumerate(grown.parents):
        assert parent < node
        above = 1.0 if parent == ROOT else grown.chances[parent]
        assert grown.chances[node] == pytest.approx(above * grown.confidence[node])


def test_a_tree_keeps_within_depth_width_nodes_and_least():
    rng = random.Random(2)
    tokens = tuple(rng.randrange(4) for _ in range(200))
    text = read(tokens)
    *_, shortest = text.repeated()
    shape = grow(text, shortest, GrowthLimits(Budget(5, 2, 9)))
    assert len(shape.tokens) == 9
    assert max(len(path_of(shape, node)) for node in range(9)) <= 5
    assert max(shape.parents.count(parent) for parent in set(shape.parents)) <= 2
    assert min(grow(text, shortest, GrowthLimits(LARGE, least=0.05)).chances) >= 0.05
    assert not grow(text, shortest, GrowthLimits(Budget())).tokens


def test_the_factor_bounds_the_nodes_by_the_match():
    text = (1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3)
    assert len(longest(text, factor=1.0).tokens) == 3
    assert len(longest(text, factor=1.5).tokens) == 4
    assert not longest((1, 2, 1), factor=0.5).tokens


def test_nothing_follows_an_end_token():
    assert longest((1, 2, 3, 4, 5, 1, 2), end={4}).tokens == (3, 4)


def test_no_more_nodes_than_are_worth_their_rows():
    free = longest((1, 2, 3, 4, 5, 6, 7, 1, 2))
    dear = longest((1, 2, 3, 4, 5, 6, 7, 1, 2), rows=RowCosts((0.0, 0.1, 0.2, 0.3, 1.3)))
    assert len(dear.tokens) == 3 < len(free.tokens)
    assert dear.gain == pytest.approx(dear.score - 0.3)


def test_the_suffix_whose_tree_is_worth_most_is_continued():
    # (9, 1) was followed by 5 once; (1) by 6 four times and by 5 once
    tokens = (1, 6, 1, 6, 1, 6, 1, 6, 9, 1, 5, 8, 9, 1)
    chosen = best(tokens, rule=SHARES, budget=Budget(1, 1))
    assert chosen.tokens == (6,)
    assert chosen.match == 1
    assert longest(tokens, rule=SHARES, budget=Budget(1, 1)).tokens == (5,)


def test_a_tie_goes_to_the_longer_suffix():
    chosen = best((9, 1, 5, 9, 1), rule=SHARES, budget=Budget(1, 1))
    assert chosen.match == 2


def test_a_text_without_repeats_has_no_continuation():
    assert not best((1, 2, 3)).tokens
    assert not best(()).tokens
    assert best((1, 2, 3)).gain == 0


def test_suffixes_of_another_text_have_all_their_occurrences_behind_them():
    earlier = read((1, 2, 3, GAP, 1, 2, 4, GAP))
    found = best_continuation(earlier, earlier.suffixes((7, 1, 2)), GrowthLimits(Budget(2, 8), rule=SHARES), own=False)
    assert sorted(zip(found.tokens, found.confidence, strict=True)) == [(3, 0.5), (4, 0.5)]


def test_the_gap_between_answers_is_never_drafted_but_counts():
    earlier = read((1, 2, GAP, 1, 2, 3, GAP))
    found = best_continuation(earlier, earlier.suffixes((1, 2)), GrowthLimits(LARGE, rule=SHARES), own=False)
    assert found.tokens == (3,)
    assert found.confidence == (0.5,)


def test_beyond_the_climb_no_chance_is_above_one():
    text = SuffixAutomaton(climb=1)
    text.read((1, 2) * 12)
    for suffix in text.repeated():
        for chance, *_ in followers(text, suffix.state, suffix.length, GrowthLimits(LARGE), at_end=True):
            assert 0 < chance <= 1
