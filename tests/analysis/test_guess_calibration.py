"""Predicted probabilities beside counts: intervals of known shares, and words that follow them."""

from math import sqrt

import pytest

from specdec_lib.analysis.guess_calibration import (
    Guesses,
    draft_deviation,
    guesses_by_depth,
    guesses_by_slot,
    guesses_of,
    quarters,
    slot_title,
    told_apart,
)


def test_the_interval_of_a_share_is_wilsons():
    assert Guesses(32, 13).interval == pytest.approx((0.2552, 0.5774), abs=1e-4)
    assert Guesses(10, 0).interval == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert Guesses(0, 0).interval == (0, 1)
    assert Guesses(0, 0).share is None


def test_a_prediction_is_wrong_only_outside_the_interval():
    assert [Guesses(32, 13, prob).said for prob in (0.31, 0.2, 0.6, None)] == [
        "not told apart", "too low", "too high", "not known"]
    assert Guesses(0, 0, 0.5).said == "not known"
    assert Guesses(32, 13, 0.31).row == {"guesses": 32, "predicted, mean": 0.31, "right": 13 / 32,
                                         "95 % interval": "0.26 to 0.58", "the prediction is": "not told apart"}


def test_pairs_are_counted_in_quarters_from_the_least_probable():
    assert guesses_of([(0.5, True), (0.25, False)]) == Guesses(2, 1, 0.375)
    assert guesses_of([]) == Guesses(0, 0, None)
    assert quarters([(n / 8, n > 5) for n in reversed(range(8))]) == [
        Guesses(2, 0, 0.0625), Guesses(2, 0, 0.3125), Guesses(2, 0, 0.5625), Guesses(2, 2, 0.8125)]


def test_equally_probable_guesses_are_not_sorted_by_whether_they_were_right():
    assert {part.right for part in quarters([(0.5, n % 2 == 0) for n in range(40)])} == {5}


def test_a_slot_counts_the_drafts_that_were_right_so_far_where_text_came():
    drafts = [((1, 2), (0.5, 0.25), (1, 2, 9)), ((1, 2), (0.75, 0.5), (1, 3)), ((4, 2), (0.25, 0.5), (1, 2)),
              ((1, 2), (0.5, 0.5), (1,))]
    assert guesses_by_slot(drafts, 2) == [Guesses(4, 3, 0.5), Guesses(2, 1, 0.375)]


def test_rates_by_depth_are_turned_back_into_the_drafts_that_reached_it():
    assert guesses_by_depth([0.5, 0.25, None, 0.5], 100) == [Guesses(100, 50), Guesses(50, 12), Guesses(12, 0),
                                                             Guesses(0, 0)]


def test_a_title_says_of_each_slot_what_its_counts_support():
    found = [Guesses(100, 50, 0.9), Guesses(4, 1, 0.25), Guesses(0, 0)]
    assert slot_title(found, 3) == ("slot 1: 50% right at confidence 90%, too high; "
                                    "slot 2: 25% right at confidence 25%, not told apart")


def test_two_shares_are_told_apart_by_the_interval_of_their_difference():
    assert not told_apart(Guesses(26, 5), Guesses(26, 7))
    assert told_apart(Guesses(2600, 500), Guesses(2600, 700))
    assert not told_apart(Guesses(0, 0), Guesses(26, 7))


def test_the_error_of_tokens_per_forward_is_that_of_the_accepted_tokens():
    assert draft_deviation([0.5], 100) == pytest.approx(0.05)            # a coin: variance a quarter
    assert draft_deviation([0.5, 1.0, None], 100) == pytest.approx(0.1)  # nothing or two: variance one
    assert draft_deviation([1.0, 1.0], 4) == 0
    assert draft_deviation([0.5, 0.5], 1) == pytest.approx(sqrt(0.5 * 1 + 0.25 * 3 - 0.75 ** 2))
