"""What a board shows of a decode: the last writing of each cell, revisions, and wrong digits; and of solved boards."""

import pytest

from specdec_lib.analysis.sudoku_boards import board_frame, sign_test, solved_sentence
from specdec_lib.canvas.types import Canvas, CanvasRound, CanvasSession

ANSWER = (5, 1, 2, 3)
START = Canvas((5, 0, 0, 0), 0, (1, 2, 3))
SESSION = CanvasSession.begin(START).after(CanvasRound((1, 3), (1, 9), (0.9, 0.4))).after(
    CanvasRound((3,), (3,), (0.8,), hidden=(3,))).after(CanvasRound((2, 1), (2, 1), (0.7, 0.95)))


def test_a_frame_has_the_last_writing_of_each_cell():
    last = board_frame(SESSION, 3, ANSWER)
    assert (last.digits, last.clues) == (ANSWER, START.tokens)
    assert last.confidence == (None, 0.95, 0.7, 0.8)
    assert last.order == {1: 3, 2: 3, 3: 2}
    assert last.revised == (3,)                    # cell 1 was written twice with one digit
    assert last.wrong == ()


def test_a_frame_knows_nothing_of_later_rounds():
    first = board_frame(SESSION, 1, ANSWER)
    assert first.digits == (5, 1, 0, 9)
    assert (first.order, first.revised, first.wrong) == ({1: 1, 3: 1}, (), (3,))
    assert board_frame(SESSION, 0, ANSWER).order == {}


def test_a_cell_that_was_emptied_again_is_open():
    emptied = SESSION.after(CanvasRound((2,), (0,), (0.0,)))
    frame = board_frame(emptied, 4, ANSWER)
    assert frame.digits[2] == 0
    assert frame.confidence[2] is None
    assert 2 not in frame.order


@pytest.mark.parametrize(("alone", "p"), [((4, 0), .125), ((6, 0), .03125), ((0, 0), 1), ((3, 1), .625), ((1, 1), 1)])
def test_the_p_of_solved_boards_counts_those_that_one_side_alone_solves(alone, p):
    one, other = alone
    first = [True] * one + [False] * other + [True, False]
    second = [False] * one + [True] * other + [True, False]
    assert sign_test(first, second) == sign_test(second, first) == p


@pytest.mark.parametrize(("lost", "said"), [
    (4, "a solves all 6 boards, b 2 of 6: not told apart (exact sign test, p = 0.125)"),
    (6, "a solves all 6 boards, b none of 6: more solved (exact sign test, p = 0.031)")])
def test_solved_boards_are_told_apart_by_the_test_alone(lost, said):
    some = [False] * lost + [True] * (6 - lost)
    assert solved_sentence("a", [True] * 6, "b", some) == said
    assert ("fewer solved" in solved_sentence("b", some, "a", [True] * 6)) == (lost == 6)
