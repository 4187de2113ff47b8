"""AdaEDL's two averages, worked by hand from its update."""

import pytest

from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.when.adaedl import CARD, AdaEdl, Averages, LowAcceptance
from tests.when.history import after, trail
from tests.worlds import kit


def test_at_first_it_stops_above_1_8_nats():
    stop = AdaEdl(9)(begin((1,), 5), NO_DICE).stop
    assert not stop(trail(1.79))
    assert stop(trail(1.81))
    assert not stop(trail(9.0, .1))
    assert not stop(())
    assert not LowAcceptance(.5, 1.0)(trail(.25)), "the comparison is strict"


def test_both_averages_move_as_worked_by_hand():
    # AR: (0 + 1)/2 = .5, .75, .875, .9375, then half of it; lambda: + .001 while AR < .9, - .001 above
    rounds, expected = [], [(.4, 0), (.401, .5), (.402, .75), (.403, .875), (.402, .9375), (.403, .46875)]
    for kept, (threshold, acceptance) in zip((4, 4, 4, 4, 0, None), expected, strict=True):
        found = AdaEdl(8).averages(after(*rounds))
        assert found == (pytest.approx(threshold, abs=1e-12), pytest.approx(acceptance, abs=1e-12))
        rounds.append((4, kept))


def test_the_accepted_share_counts_and_not_the_number():
    assert AdaEdl(8).averages(after((8, 6))).acceptance == AdaEdl(8).averages(after((4, 3))).acceptance == .375


def test_each_constant_enters_the_update_at_its_position():
    policy = AdaEdl(8, start=.5, target_acceptance=.2, inertia=.75, smooth=.5, step=.1)
    # AR .25 * 1/2 = .125 < .2: wanted .6, half-way there .55; then .75 * .125 + .25 = .34375: wanted .45, .5
    assert policy.averages(after((4, 2))) == (pytest.approx(.55), pytest.approx(.125))
    assert policy.averages(after((4, 2), (4, 4))) == (pytest.approx(.5), pytest.approx(.34375))


def test_hold_keeps_the_threshold_after_a_draft_of_full_depth():
    history = after((4, 4), (4, 4), (4, 4), (4, 4))
    assert AdaEdl(4, hold=True).averages(history).threshold == pytest.approx(.403)
    assert AdaEdl(5, hold=True).averages(history).threshold == pytest.approx(.402)
    assert AdaEdl(4).averages(history).threshold == pytest.approx(.402)


def test_the_threshold_stays_between_0_and_1():
    assert AdaEdl(4, start=1.0, step=1.0).averages(after((4, 0), (4, 0))).threshold == 1
    assert AdaEdl(4, start=0.0, step=1.0, target_acceptance=0).averages(after((4, 4))).threshold == 0


def test_rounds_without_a_draft_change_nothing():
    assert AdaEdl(4).averages(after((0, 0), (0, 0))) == Averages(.4, 0.0)


def test_the_budget_carries_the_current_threshold():
    budget = AdaEdl(8)(after((4, 4)), NO_DICE)
    assert budget == Budget(8, stop=LowAcceptance(AdaEdl(8).averages(after((4, 4))).threshold, .2))


def test_its_depth_comes_from_the_cost_curve():
    assert CARD.make(kit(nodes=5)) == AdaEdl(5)
    assert CARD.make(kit(), start=.6, hold=True) == AdaEdl(3, .6, hold=True)


@pytest.mark.parametrize("wrong", [{"start": 1.1}, {"smooth": -1}, {"inertia": 2}, {"target_acceptance": -.1},
                                   {"rate": -1.0}, {"step": -.1}, {"depth": -1}], ids=str)
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal):
        CARD.make(kit(), **wrong)
