"""Guesses along an answer: one row a depth, right where the best token is the one that came."""

import torch

from specdec_lib.analysis.counted_guesses import Guess, answer_guesses, share_right
from specdec_lib.scores import Scores
from specdec_lib.what.eagle2 import log_chances, usual_sharpness
from tests.worlds import network_kit

TEXT = (0, 1, 2, 3, 1, 2, 3, 1, 2, 4)


def head(tokens, draft):
    """It likes token 4 a little, whatever came, and is asked at tokens of the text alone."""
    assert (*tokens, *draft.tokens) == TEXT[:len(tokens) + len(draft)]
    return Scores(torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0]] * (len(draft) + 1)), torch.arange(5))


def test_each_position_gives_a_row_a_depth_and_counts_change_the_guess():
    found = answer_guesses(head, TEXT, 3, 2)
    assert [(one.depth, one.place, one.came) for one in found[:4]] == [(1, 4, 1), (2, 5, 2), (1, 5, 2), (2, 6, 3)]
    assert found[-1].place == len(TEXT) - 1
    assert {one.best(0.0) for one in found} == {4}
    assert share_right(found, 0.0) == sum(one.came == 4 for one in found) / len(found)
    later = [one for one in found if 5 <= one.place < 9]
    assert all(one.right(9.0) for one in later)
    assert not any(one.right(9.0) for one in found if one.place == 9)     # 3 followed before
    assert share_right(found, 9.0, 1) == share_right([one for one in found if one.depth == 1], 9.0) > 0.5
    assert share_right([], 1.0) == 0


def test_a_guess_is_the_best_token_of_a_greedy_tree():
    guess, weight = Guess(1, 5, 7, (7, 8), (2.0, 1.0), (0.0, 0.42)), 2.5   # 2.5 * 0.42 is 1.05: between 1 and GREEDY
    joined = log_chances(guess.logits, 0.0, usual_sharpness(network_kit(None)), [weight * p for p in guess.chances])
    assert guess.best(weight) == guess.ids[joined.index(max(joined))] == 7
    assert guess.best(weight + 0.25) == 8


def test_fewer_positions_are_a_part_of_all():
    every = answer_guesses(head, TEXT, 3, 2, 3)
    whole = answer_guesses(head, TEXT, 3, 2)
    assert len(every) < len(whole)
    assert all(one in whole for one in every)
