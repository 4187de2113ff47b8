"""Branch point: drafting stops where the next draft will branch, and the first position never stops it."""

import pytest

from specdec_lib.loop import begin
from specdec_lib.scores import TokenStats
from specdec_lib.types import NO_DICE, Refusal
from specdec_lib.when.branch_point import BranchPoint, UncertainAfterFirst
from specdec_lib.when.fixed import Fixed
from tests.worlds import kit

SURE, UNSURE = TokenStats(.1, .5, .2, 1.0), TokenStats(.29, .29, .28, 2.0)


@pytest.mark.parametrize(("trail", "stops"), [((UNSURE,), False), ((SURE, UNSURE), True), ((UNSURE, SURE), False),
                                              ((UNSURE, UNSURE), True), ((), False)])
def test_it_stops_at_an_uncertain_row_after_the_first(trail, stops):
    assert UncertainAfterFirst(.3)(trail) is stops


def test_the_drawn_token_decides_nothing():
    unlikely = TokenStats(.01, .9, .05, .1)
    assert not UncertainAfterFirst(.3)((SURE, unlikely))
    assert not UncertainAfterFirst(.5)((SURE, SURE)), "as likely as epsilon is likely enough"


def test_length_width_and_rule_come_together():
    budget = BranchPoint(Fixed(5), 3, .3)(begin((1,), 20), NO_DICE)
    assert (budget.depth, budget.size, budget.stop) == (5, 15, UncertainAfterFirst(.3))
    assert BranchPoint(Fixed(5), 3, 0.0)(begin((1,), 20), NO_DICE).stop is None


def test_without_a_depth_it_is_the_speed_ratio():
    assert kit().part("branch-point", depth=7)(begin((1,), 20), NO_DICE).depth == 7
    assert kit().part("branch-point")(begin((1,), 20), NO_DICE).depth == 4         # its first length


@pytest.mark.parametrize("values", [{"width": 0}, {"epsilon": 1.1}, {"epsilon": -.1}])
def test_values_that_cannot_be_are_refused(values):
    with pytest.raises(Refusal, match="width from|epsilon must be"):
        BranchPoint(Fixed(3), **values)
