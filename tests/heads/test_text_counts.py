"""Counts of a text are the interpolated n-gram model of its formula, whatever was read before."""

import random

import pytest

from specdec_lib.heads.text_counts import LONGEST, PLACES, ROOM, TextCounts
from specdec_lib.types import Refusal


def by_formula(whole, token):
    """p_n(w) = (c + u p_{n-1}(w)) / (t + u) of the last places, from all places by their last n tokens."""
    places = [i for i in range(len(whole) - 1) if whole[i] == whole[-1]][-PLACES:]
    chance = 0.0
    for n in range(1, LONGEST + 1):
        nexts = [whole[i + 1] for i in places if i + 1 >= n and whole[i + 1 - n:i + 1] == whole[-n:]]
        if nexts:
            kinds = len(set(nexts))
            chance = (nexts.count(token) + kinds * chance) / (len(nexts) + kinds)
    return chance


@pytest.mark.parametrize("tokens", [2, 5, 40])
def test_chances_are_those_of_the_formula_in_any_order_of_texts(tokens):
    dice, counts = random.Random(tokens), TextCounts(1.0)
    text = tuple(dice.randrange(tokens) for _ in range(300))
    for stop in (1, 2, 30, 31, 29, 300, 120, 299):
        own = text[:stop] if stop != 120 else (*text[:90], *text[200:])  # another text with the same beginning
        counts.read(own)
        for depth in (0, 1, 2, 5):
            path = tuple(dice.randrange(tokens) for _ in range(depth))
            want = [by_formula(own + path, token) for token in range(tokens)]
            assert counts.chances(path, range(tokens)) == pytest.approx(want, abs=1e-15)
            assert sum(want) <= 1 + 1e-9


def test_a_long_text_and_large_tokens_find_room():
    counts, big = TextCounts(3.0), 5 * ROOM
    text = tuple([7, big, 9, big] * ROOM)
    counts.read(text)
    assert counts.chances((), (7, 9, 3)) == pytest.approx([by_formula(text, token) for token in (7, 9, 3)])
    assert counts.chances((8 * ROOM,), (7,)) == [0.0]      # a path's own token that no text holds
    assert counts.bonus((7,), (big, 7)) == pytest.approx([3 * by_formula((*text, 7), big), 0])
    counts.read((1, 2, 1))
    assert counts.chances((), (2, 7)) == [0.5, 0.0]
    small = TextCounts(1.0)
    small.read((7, 9) * ROOM)
    assert small.chances((), (7,)) == pytest.approx([by_formula((7, 9) * ROOM, 7)])


def test_what_followed_long_ago_is_forgotten():
    counts = TextCounts(1.0)
    counts.read((5, 6) * 10 + (5, 7) * PLACES + (5,))
    assert counts.chances((), (6,)) == [0.0]


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_a_weight_below_zero_or_without_end_is_refused(wrong):
    with pytest.raises(Refusal, match="counts must be 0 or more and finite"):
        TextCounts(wrong)
