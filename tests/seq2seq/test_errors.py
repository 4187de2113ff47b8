"""Error rates on cases that can be counted by hand, and the distance against its definition."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib.seq2seq.alphabet import BOUNDARY, END
from specdec_lib.seq2seq.errors import Errors, edit_distance, errors, total

letters = st.lists(st.integers(5, 7), max_size=6).map(tuple)


@cache
def defined(one: tuple, two: tuple) -> int:
    """Levenshtein's distance by its recursive definition."""
    if not one or not two:
        return len(one) + len(two)
    return min(defined(one[1:], two) + 1, defined(one, two[1:]) + 1, defined(one[1:], two[1:]) + (one[0] != two[0]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(letters, letters)
def test_the_distance_is_that_of_its_definition(one, two):
    assert edit_distance(one, two) == defined(one, two)


def test_the_nearest_of_several_pronunciations_counts_and_its_end_does_not():
    assert errors((5, 6, END), [(5, 7, 8, END), (5, 6, 7, END)]) == Errors(1, 3, 1, 1)
    assert errors((5, 6, END), [(7, END), (5, 6, END)]) == Errors(0, 2, 0, 1)


def test_words_of_a_sentence_are_counted_one_by_one():
    right = (5, 6, BOUNDARY, 7, BOUNDARY, 5, 5, END)
    assert errors((5, 6, BOUNDARY, 7, 7, BOUNDARY, 5, 5, END), [right]) == Errors(1, 7, 1, 3)
    assert errors((5, 6, 7, BOUNDARY, 5, 5, END), [right]) == Errors(1, 7, 2, 3)
    whole = total([Errors(1, 7, 1, 3), Errors(0, 3, 0, 1)])
    assert (whole.phoneme_rate, whole.word_rate) == (0.1, 0.25)
