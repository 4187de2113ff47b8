import itertools
import random

import pytest

from specdec_lib.index.ngram_positions import NgramPositions


def by_brute_force(tokens, gram):
    return [i + len(gram) for i in range(len(tokens) - len(gram) + 1) if tokens[i:i + len(gram)] == gram]


def test_positions_agree_with_brute_force_for_sessions_in_any_order():
    rng, index = random.Random(0), NgramPositions(3)
    base = tuple(rng.randrange(3) for _ in range(40))
    grams = [gram for n in (1, 2, 3) for gram in itertools.product(range(3), repeat=n)]
    for _ in range(60):
        tokens = base[:rng.randrange(41)] + tuple(rng.randrange(3) for _ in range(rng.randrange(5)))
        index.read(tokens)
        for gram in grams:
            assert list(index.after(gram)) == by_brute_force(tokens, gram)


def test_going_back_to_an_empty_text_empties_the_index():
    index = NgramPositions(2)
    index.read((1, 2, 1, 2))
    index.read(())
    assert index._after == {}


def test_ngrams_longer_than_indexed_are_unknown():
    index = NgramPositions(2)
    index.read((1, 2, 3, 1, 2, 3))
    assert list(index.after((2, 3))) == [3, 6]
    assert list(index.after((1, 2, 3))) == []


def test_a_length_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        NgramPositions(0)
