"""The margin between the two best tokens, worked by hand."""

from math import log

import pytest

from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.when.margin import CARD, CloseTop, Margin
from tests.when.history import stat
from tests.worlds import kit


def seen(first, second, prob=.5):
    return (stat(prob=prob, first=first, second=second),)


def test_it_stops_where_the_difference_of_probabilities_is_below_the_threshold():
    stop = Margin(9)(begin((1,), 5), NO_DICE).stop
    assert stop(seen(.45, .30))
    assert not stop(seen(.55, .30))
    assert stop(seen(.1, .05))
    assert not CloseTop(.25)(seen(.5, .25))
    assert not stop(())


def test_with_logits_the_ratio_of_probabilities_counts():
    stop = Margin(9, h=log(2), logits=True)(begin((1,), 5), NO_DICE).stop
    assert stop(seen(.59, .30))
    assert not stop(seen(.61, .30))
    assert not stop(seen(.11, .05))


def test_a_second_probability_of_zero_is_an_infinite_margin():
    assert not CloseTop(50.0, logits=True)(seen(1.0, 0.0))


def test_it_depends_on_the_distribution_and_not_on_the_drawn_token():
    assert {CloseTop(.2)(seen(.6, .3, prob)) for prob in (.6, .3, .01)} == {False}


def test_only_the_last_token_counts():
    assert not CloseTop(.2)(seen(.3, .3) + seen(.9, .1))
    assert CloseTop(.2)(seen(.9, .1) + seen(.3, .3))


def test_its_depth_comes_from_the_cost_curve():
    assert CARD.make(kit(nodes=5)) == Margin(5)
    assert CARD.make(kit(), depth=2, h=1.5, logits=True)(begin((1,), 5), NO_DICE) == Budget(2, stop=CloseTop(1.5, True))


@pytest.mark.parametrize("wrong", [{"h": 1.5}, {"h": float("nan")}, {"depth": -1}, {"h": 800.0, "logits": True}],
                         ids=str)
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal, match="margin of"):
        CARD.make(kit(), **wrong)
