"""Shares and their intervals: published values, and verdicts that need the whole interval on one side."""

import pytest

from specdec_lib.analysis.shares import Share, changed, compared, difference, forecast


def test_intervals_are_those_of_the_published_examples():
    assert Share(81, 263).interval == pytest.approx((0.2553, 0.3662), abs=5e-5)             # Newcombe 1998a, table I
    assert Share(0, 20).interval == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert difference(Share(56, 70), Share(48, 80)) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)  # 1998b
    assert Share(0, 0).interval == (0.0, 1.0)


def test_two_shares_are_told_apart_only_by_the_interval_of_their_difference():
    def said(one, other):
        return compared("x", Share(*one), "y", Share(*other), "right more often", "right less often")

    assert said((31, 48), (25, 48)) == ("x is not told apart from y: 31 of 48 against 25 of 48, "
                                        "a difference of +0.12 (-0.07 to +0.31)")
    assert said((40, 48), (20, 48)).startswith("x is right more often than y")
    assert said((20, 48), (40, 48)).startswith("x is right less often than y")


def test_a_forecast_is_judged_by_the_interval_of_what_came():
    assert "0.49 is too high for what was accepted, 3 of 31, 0.10 (0.03 to 0.25)" in forecast("x", 0.49, Share(3, 31))
    assert "0.01 is too low for" in forecast("x", 0.01, Share(15, 31))
    assert "0.50 is not told apart from" in forecast("x", 0.5, Share.of([True, False] * 10))


def test_a_change_is_a_gain_only_where_more_guesses_become_right_than_chance_would_have_it():
    assert changed("x:", 163, 99) == "x: 163 become right and 99 wrong: a gain"
    assert changed("x:", 99, 163).endswith("a loss")
    assert changed("x:", 9, 8).endswith("no difference shown")
