import pytest

from specdec_lib.cards import Kit
from specdec_lib.loop import begin
from specdec_lib.scores import TokenStats
from specdec_lib.trees import UnlikelyPath, stop_when_unlikely
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.when.path_chance import CARD, PathChance


def trail(*probs):
    return tuple(TokenStats(prob, prob, 0.0, 0.0) for prob in probs)


def test_it_stops_where_the_product_along_the_path_is_below_least():
    stop = PathChance(4, 2, 6, 0.4)(begin((1,), 5), NO_DICE).stop
    assert not stop(trail(0.5))
    assert not stop(trail(0.8, 0.5))
    assert not stop(trail(0.4))
    assert stop(trail(0.5, 0.7))
    assert stop(trail(0.39))


def test_its_budget_is_the_same_every_round():
    assert PathChance(4, 2, 6, 0.4)(begin((1,), 5), NO_DICE) == Budget(4, 2, 6, stop=UnlikelyPath(0.4))


def test_least_0_never_stops():
    assert PathChance(4, least=0)(begin((1,), 5), NO_DICE) == Budget(4)
    assert stop_when_unlikely(Budget(4), 0) == Budget(4)


def test_its_depth_comes_from_the_cost_curve():
    assert CARD.make(Kit(None, nodes=7)).depth == 7


@pytest.mark.parametrize("wrong", [{"least": -0.1}, {"least": 1.1}, {"depth": -1}, {"width": 0}, {"nodes": -1}],
                         ids=str)
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal):
        CARD.make(Kit(None), **wrong)


def test_an_impossible_probability_is_refused_by_stop_when_unlikely_too():
    with pytest.raises(Refusal, match="between 0 and 1, got 2"):
        stop_when_unlikely(Budget(4), 2)
