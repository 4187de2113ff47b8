"""Closed forms: the speeds of known settings, their limits, and the acceptance at which PEARL overtakes."""

import itertools

import pytest

from specdec_lib.schedules import closed_forms as forms


@pytest.mark.parametrize(("alpha", "pearl", "serial"), [(.5, 1.33, 1.46), (.8, 2.63, 2.47), (.9, 4.24, 3.43),
                                                        (.95, 5.94, 4.48)])
def test_at_a_ratio_of_ten_pearl_overtakes_the_best_serial_speculation_between_a_half_and_four_fifths(
        alpha, pearl, serial):
    assert forms.pearl_speed(alpha, 10) == pytest.approx(pearl, rel=.012)        # these four were simulated
    assert forms.best_serial_speed(alpha, 10) == pytest.approx(serial, abs=.005)


@pytest.mark.parametrize("alpha", [0.0, .3, .7, .95])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_two_modes_without_branches_are_the_printed_form(alpha, length):
    a = alpha ** length
    assert forms.two_mode_tokens(alpha, length) == pytest.approx((1 - a) / ((1 - alpha) * (1 - a + alpha)))


@pytest.mark.parametrize(("alpha", "length", "first"), [(.6, 3, .6), (.6, 3, .9), (.3, 4, .0), (.9, 1, .5)])
def test_tokens_are_those_of_the_chain_iterated(alpha, length, first):
    """The two modes as a Markov chain, its distribution iterated: no algebra shared with the closed form."""
    pre, total = 1.0, 0.0
    for _ in range(4000):
        post = 1 - pre
        pending = sum(alpha ** n * (1 - alpha) * (n + 1) for n in range(length - 1)) + alpha ** (length - 1) * length
        total = pre * 1 + post * pending
        pre = pre * (1 - first) + post * (1 - alpha ** (length - 1) * first)
    assert forms.two_mode_tokens(alpha, length, first) == pytest.approx(total)


def test_a_verdict_on_tests_is_the_sum_over_all_branches():
    alpha, length, mean = .7, 3, 0.0
    for passed in itertools.product((True, False), repeat=length):
        prob, tokens = 1.0, 1
        for one in passed:
            prob *= alpha if one else 1 - alpha
        tokens += next((n for n, one in enumerate(passed) if not one), length)
        mean += prob * tokens
    assert forms.serial_tokens(alpha, length) == pytest.approx(mean)


def test_a_drafter_that_is_always_right_reaches_the_ceiling_of_the_speed_ratio():
    assert forms.pearl_speed(1.0, 10) == 10
    assert forms.pearl_speed(1.0, 10, length=4) == 4
    assert forms.pearl_speed(1.0, 4, length=10) == pytest.approx(4)
    assert forms.serial_tokens(1.0, 5) == 6
    assert forms.pipelined_speed(1.0, 6, 24) == 4


def test_a_drafter_that_is_always_wrong_costs_the_parallel_schedules_nothing_and_the_serial_one_its_draft():
    assert forms.pearl_speed(0.0, 10) == 1
    assert forms.pipelined_speed(0.0, 6, 24) == 1
    assert forms.serial_speed(0.0, 5, 10) == pytest.approx(10 / 15)
    assert forms.best_serial_length(0.0, 10) == 0


def test_the_matched_length_is_the_best_one_of_pearl():
    for alpha, ratio in itertools.product((.5, .8, .95), (2, 5, 10)):
        speeds = {length: forms.pearl_speed(alpha, ratio, length) for length in range(1, 30)}
        assert forms.matched_length(ratio) == max(speeds, key=lambda length: round(speeds[length], 12))


def test_break_even_is_where_both_are_equally_fast_and_pearl_is_ahead_above_it():
    for ratio in (7, 10, 20, 40):
        alpha = forms.break_even(ratio)
        assert forms.pearl_speed(alpha, ratio) == pytest.approx(forms.best_serial_speed(alpha, ratio), abs=1e-4)
        assert forms.pearl_speed(alpha - .01, ratio) < forms.best_serial_speed(alpha - .01, ratio)
        assert all(forms.pearl_speed(a, ratio) > forms.best_serial_speed(a, ratio)
                   for a in (alpha + .01, (alpha + 1) / 2, .999))


def test_break_even_rises_with_the_ratio_and_is_zero_or_none_where_nothing_crosses():
    found = [forms.break_even(ratio) for ratio in (5, 7, 10, 20, 40)]
    assert found == sorted(found)
    assert forms.break_even(2) == 0
    assert forms.break_even(1.4) is None           # one token drafted, none of them ever beyond the verdict's own


def test_more_branches_help_only_in_the_first_token_and_cost_their_steps():
    assert forms.two_mode_speed(.5, 8, 8, first=.9) > forms.two_mode_speed(.5, 8, 8)
    assert forms.two_mode_speed(.5, 8, 8, first=.9, steps=24) == pytest.approx(
        forms.two_mode_speed(.5, 8, 8, first=.9) / 3)


@pytest.mark.parametrize("wrong", [lambda: forms.serial_tokens(1.1, 3), lambda: forms.pipelined_speed(.5, 9, 8),
                                   lambda: forms.pearl_speed(.5, 0), lambda: forms.two_mode_tokens(.5, 0),
                                   lambda: forms.two_mode_tokens(.5, 3, -.1), lambda: forms.pipelined_speed(2, 1, 8),
                                   lambda: forms.serial_speed(.5, 2, -1), lambda: forms.geometric(.5, -1)])
def test_what_is_no_probability_no_length_or_no_ratio_is_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        wrong()


def test_ranges_of_acceptance_end_where_a_schedule_falls_behind_again():
    def short(alpha, ratio):
        return forms.pearl_speed(alpha, ratio, 8)          # drafts of 8 at ratio 10: at best 8 tokens a forward

    assert forms.break_even(10, short) is None
    [(low, high)] = forms.ahead_ranges(10, short, lowest=.2)
    assert .7 < low < .8 < .99 < high < 1
    for end in (low, high):
        assert 0 <= short(end, 10) / forms.best_serial_speed(end, 10) - 1 < 1e-5     # at its end, too, not behind
    assert short(.9, 10) > forms.best_serial_speed(.9, 10)
    assert forms.ahead_ranges(10, lowest=.2) == [(pytest.approx(forms.break_even(10)), 1.0)]
    assert forms.ahead_ranges(2) == [(0.0, 1.0)]
    assert forms.ahead_ranges(24, lambda alpha, ratio: 0.0) == []
