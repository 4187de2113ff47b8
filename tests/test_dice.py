"""Coins are keyed: the same question at the same place gets the same answer, whatever was asked in between."""

import torch

from specdec_lib.dice import Dice
from specdec_lib.exact import every_outcome
from specdec_lib.scores import Distribution

HALF = Distribution(torch.tensor([3, 8]), torch.tensor([.5, .5]))
SKEW = Distribution(torch.tensor([3, 8, 9]), torch.tensor([.2, .7, .1]))


def test_a_position_always_shows_the_same_coin():
    dice = Dice(7)
    first = [dice.at(i).choose(HALF) for i in range(50)]
    dice.flip(.5)
    assert [dice.at(i).choose(HALF) for i in range(50)] == first
    assert set(first) == {3, 8}


def test_several_throws_at_one_position_differ():
    coins = Dice(7).at(3)
    assert len({coins.flip(.5) for _ in range(40)}) == 2


def test_forks_are_independent_of_each_other():
    one, other = Dice(7).fork("what"), Dice(7).fork("how")
    assert [one.at(i).flip(.5) for i in range(40)] != [other.at(i).flip(.5) for i in range(40)]


def test_tokens_come_at_the_rate_of_their_law():
    drawn = [Dice(1).at(i).choose(SKEW) for i in range(4000)]
    assert abs(drawn.count(8) / 4000 - .7) < .03
    assert abs(drawn.count(9) / 4000 - .1) < .02


def test_certainty_uses_up_no_coin():
    coins, same = Dice(1).at(0), Dice(1).at(0)
    assert coins.choose(Distribution.point_mass(5)) == 5
    assert coins.flip(1.0)
    assert not coins.flip(0.0)
    assert coins.choose(SKEW) == same.choose(SKEW)


def test_every_outcome_walks_every_branch_with_its_chance():
    dist = every_outcome(lambda dice: (dice.choose(SKEW), dice.flip(.25)))
    assert len(dist) == 6
    assert abs(dist[8, True] - .175) < 1e-7
    assert abs(sum(dist.values()) - 1) < 1e-6
