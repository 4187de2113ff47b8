"""The rise of the entropy, worked by hand."""

import pytest

from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.when.svip_difference import CARD, EntropyRise, SvipDifference
from tests.when.history import trail
from tests.worlds import kit


def test_it_stops_where_the_root_of_the_entropy_rises_by_more_than_the_threshold():
    stop = SvipDifference(9)(begin((1,), 5), NO_DICE).stop
    assert stop(trail(.25, .5))
    assert not stop(trail(.25, .45))
    assert stop(trail(0.0, 2.0, .01, .1))
    assert not stop(trail(0.0, 2.0, 2.1))


def test_constant_or_falling_entropy_does_not_stop():
    assert not EntropyRise(.2)(trail(4.0, 4.0))
    assert not EntropyRise(.2)(trail(4.0, 1.0))


def test_the_first_token_never_stops():
    assert not EntropyRise(.2)(trail(9.0))
    assert not EntropyRise(.2)(())
    assert not EntropyRise(-1.0)(trail(9.0))


def test_a_negative_threshold_also_stops_at_constant_entropy():
    assert EntropyRise(-.1)(trail(1.0, 1.0))
    assert not EntropyRise(-.1)(trail(1.0, .5))


def test_its_depth_comes_from_the_cost_curve():
    assert CARD.make(kit(nodes=5)) == SvipDifference(5)
    assert CARD.make(kit(), depth=2, h=.5)(begin((1,), 5), NO_DICE) == Budget(2, stop=EntropyRise(.5))


@pytest.mark.parametrize("wrong", [{"h": float("nan")}, {"depth": -1}], ids=str)
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal):
        CARD.make(kit(), **wrong)
