"""The fixed budget."""

import pytest

from specdec_lib.dice import Dice
from specdec_lib.loop import begin
from specdec_lib.types import Budget, Refusal
from specdec_lib.when.fixed import CARD, Fixed
from tests.worlds import kit

SESSION = begin((1, 2), 20)


def test_it_gives_the_same_budget_every_round():
    assert Fixed(4, 2, 6)(SESSION, Dice(0)) == Budget(4, 2, 6)


def test_its_depth_comes_from_the_cost_curve():
    assert CARD.make(kit(nodes=5)).depth == 5


def test_it_drafts_in_the_given_share_of_rounds():
    drafted = sum(Fixed(4, rate=.3)(SESSION, Dice(0).fork(i)).depth > 0 for i in range(2000))
    assert abs(drafted / 2000 - .3) < .04


@pytest.mark.parametrize("values", [{"depth": -1}, {"depth": 1, "width": 0}, {"depth": 1, "rate": 2}])
def test_an_impossible_budget_is_refused(values):
    with pytest.raises(Refusal):
        Fixed(**values)
