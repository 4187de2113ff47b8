"""What draft lengths are worth."""

import pytest

from specdec_lib.cost.lengths import best_length, expected_rates


def test_tokens_per_second_are_counted_along_the_chain():
    assert list(expected_rates((.5, .4), lambda n: 1 + n)) == pytest.approx([1, 1.5 / 2, 1.7 / 3])
    assert list(expected_rates((), lambda n: 2.0)) == [.5]


def test_the_best_length_looks_behind_a_poor_depth_and_takes_the_shorter_of_equals():
    def stairs(n):
        return (1.0, 2.0, 2.0, 2.0)[n]

    assert best_length((.9, .9, .9), stairs) == 3
    assert best_length((.2, .2, .2), stairs) == 0
    assert best_length((1, 0, 0), lambda n: 1.0) == 1
    assert best_length((0, 0, 0), stairs, 2) == 2
