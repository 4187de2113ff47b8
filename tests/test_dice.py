"""Random numbers are keyed: the same key and position give the same numbers, whatever was drawn in between."""

import pytest
import torch

from specdec_lib.dice import Dice
from specdec_lib.exact import every_outcome
from specdec_lib.scores import Categorical

HALF = Categorical(torch.tensor([3, 8]), torch.tensor([.5, .5]))
SKEW = Categorical(torch.tensor([3, 8, 9]), torch.tensor([.2, .7, .1]))


def test_a_position_always_gives_the_same_random_numbers():
    dice = Dice(7)
    first = [dice.at(i).choose(HALF) for i in range(50)]
    dice.flip(.5)
    assert [dice.at(i).choose(HALF) for i in range(50)] == first
    assert set(first) == {3, 8}


def test_repeated_draws_at_one_position_differ():
    dice = Dice(7).at(3)
    assert len({dice.flip(.5) for _ in range(40)}) == 2


def test_forks_are_independent_of_each_other():
    one, other = Dice(7).fork("what"), Dice(7).fork("how")
    assert [one.at(i).flip(.5) for i in range(40)] != [other.at(i).flip(.5) for i in range(40)]


def test_tokens_are_drawn_with_their_probabilities():
    drawn = [Dice(1).at(i).choose(SKEW) for i in range(4000)]
    assert abs(drawn.count(8) / 4000 - .7) < .03
    assert abs(drawn.count(9) / 4000 - .1) < .02


def test_a_certain_outcome_draws_no_random_number():
    dice, same = Dice(1).at(0), Dice(1).at(0)
    assert dice.choose(Categorical.point_mass(5)) == 5
    assert dice.flip(1.0)
    assert not dice.flip(0.0)
    assert dice.choose(SKEW) == same.choose(SKEW)


def test_every_outcome_enumerates_every_branch_with_its_probability():
    dist = every_outcome(lambda dice: (dice.choose(SKEW), dice.flip(.25)))
    assert len(dist) == 6
    assert abs(dist[8, True] - .175) < 1e-7
    assert abs(sum(dist.values()) - 1) < 1e-6


@pytest.mark.parametrize("drawn", [1 - 2 ** -26, 1 - 2 ** -53])
def test_a_number_that_is_rounded_up_to_the_whole_gives_no_token_of_probability_zero(drawn):
    dice = Dice(1)
    dice.__dict__["_generator"] = type("Fixed", (), {"random": lambda self: drawn})()
    assert dice.choose(Categorical(torch.tensor([3, 8, 9]), torch.tensor([.2, .8, .0]))) == 8
