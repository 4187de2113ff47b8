import random

import pytest

from specdec_lib.index.all_positions import DEEPEST, AllPositions, TextPosition
from specdec_lib.index.ngram_positions import NgramPositions


def found(tokens, query, most=64, longest=3):
    return AllPositions(NgramPositions(longest)).find(tuple(tokens), query, most)


def by_brute_force(tokens, query):
    def agree(start):
        return next((n for n in range(start) if tokens[start - 1 - n] != tokens[-1 - n]), start)
    positions = [TextPosition(start, min(DEEPEST, agree(start))) for start in range(len(tokens) - 1, 0, -1)]
    return [position for position in positions if position.length >= query]


def test_positions_agree_with_brute_force_newest_first_for_texts_in_any_order():
    rng, index = random.Random(0), AllPositions(NgramPositions(3))
    base = tuple(rng.randrange(2) for _ in range(90))
    for _ in range(80):
        tokens = base[:rng.randrange(91)] + tuple(rng.randrange(2) for _ in range(rng.randrange(4)))
        for query in (1, 2, 3, 5):
            assert index.find(tokens, query, 100) == by_brute_force(tokens, query)


def test_the_end_of_the_text_is_not_listed():
    assert found((1, 2, 3), 1) == []
    assert found((7, 1, 2, 7), 1) == [TextPosition(1, 1)]


def test_a_match_may_overlap_the_end_of_the_text():
    assert found((5, 1, 2, 1, 2, 1, 2), 2) == [TextPosition(5, 4), TextPosition(3, 2)]


def test_only_the_newest_positions_are_compared():
    assert [position.start for position in found((1, 2) * 40, 2, most=3)] == [78, 76, 74]


def test_match_lengths_are_counted_up_to_a_limit():
    assert found((1,) * 200, 1, most=1) == [TextPosition(199, 64)]


def test_a_query_may_be_longer_than_the_text_or_the_indexed_ngrams():
    assert found((1, 2), 3) == []
    assert found((1, 2, 3, 4, 9, 1, 2, 3, 4), 4, longest=2) == [TextPosition(4, 4)]


@pytest.mark.parametrize("choice", [(0, 4), (2, 0)])
def test_a_query_or_a_number_below_one_is_refused(choice):
    with pytest.raises(ValueError, match="at least 1"):
        found((1, 2, 1), *choice)


def test_the_cost_of_a_look_up_does_not_grow_with_the_text():
    rng, cost = random.Random(1), []
    tokens = tuple(rng.randrange(50) for _ in range(4000))
    for length in (400, 4000):
        positions = NgramPositions(3)
        index = AllPositions(positions)
        index.find(tokens[:length - 3], 3)
        grams, listed = positions._grams, []
        positions._grams = lambda *where, grams=grams, listed=listed: listed.append(1) or grams(*where)
        index.find(tokens[:length], 3)
        cost.append(len(listed))
    assert cost == [3, 3]                          # one list of n-grams per new token
