"""Guesses along an answer: one row a depth, right where the best token is the one that came."""

import torch

from specdec_lib.analysis.counted_guesses import answer_guesses, share_right
from specdec_lib.scores import Scores

TEXT = (0, 1, 2, 3, 1, 2, 3, 1, 2, 4)


def head(tokens, draft):
    """It likes token 4 a little, whatever came."""
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


def test_fewer_positions_are_a_part_of_all():
    every = answer_guesses(head, TEXT, 3, 2, 3)
    whole = answer_guesses(head, TEXT, 3, 2)
    assert len(every) < len(whole)
    assert all(one in whole for one in every)
