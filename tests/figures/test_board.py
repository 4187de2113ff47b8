"""A drawn Sudoku: clues, shades, order, and marks that do not depend on colour."""

import pytest

from specdec_lib import figures
from specdec_lib.figures.board import SHADES
from specdec_lib.figures.theme import INK, contrast

CLUES = [0] * 80 + [7]
DIGITS = [4, 2] + [0] * 78 + [7]
SURE = [0.25, 0.999] + [None] * 79


def drawn(**more):
    return figures.board(DIGITS, CLUES, SURE, {0: 2, 1: 1}, **more)


def test_every_cell_stands_where_it_is_read_and_clues_are_bold_on_grey():
    figure = drawn()
    grey, shade, words = figure.data[:3]
    assert words.text[:3] == ("4", "2", "")
    assert words.text[80] == "<b>7</b>"
    assert (words.x[80], words.y[80], words.x[10], words.y[10]) == (8, 8, 1, 1)
    assert grey.z[8][8] == 0
    assert sum(value is not None for line in grey.z for value in line) == 1
    assert list(shade.z[0][:3]) == [0.25, 0.999, None]
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]                 # the first line is on top


def test_a_clue_is_not_shaded_even_if_the_model_says_something_about_it():
    figure = figures.board(DIGITS, CLUES, [0.5] * 81)
    assert figure.data[1].z[8][8] is None


def test_the_order_of_filling_is_written_in_the_cell_and_told_when_pointed_at():
    figure = drawn()
    steps = next(one for one in figure.data if one.name == "order of filling")
    assert dict(zip(steps.text, map(round, steps.x), strict=True)) == {"2": 0, "1": 1}
    assert figure.data[2].hovertext[0] == "4, confidence 0.250, step 2"
    assert figure.data[2].hovertext[80] == "7, a clue"
    assert figure.data[2].hovertext[40] == "open"


def test_revised_and_wrong_cells_have_symbols_of_their_own_and_are_counted_in_the_title():
    figure = drawn(revised=[1], wrong=[0, 1])
    marks = {one.name: one for one in figure.data[2:] if one.mode == "markers"}
    assert (marks["revised"].x, marks["wrong"].x) == ((1,), (-.3, .7)), "a cross beside its digit, not on it"
    assert marks["revised"].marker.symbol != marks["wrong"].marker.symbol
    assert figure.layout.title.text == "2 of 80 blanks are filled, 1 revised, 2 wrong"
    assert not [one for one in drawn().data[2:] if one.mode == "markers"]


def test_digits_are_readable_on_every_shade():
    assert all(contrast(INK, colour) >= 7 for _, colour in SHADES)


def test_a_board_of_another_size_is_an_error():
    with pytest.raises(ValueError, match="81 cells"):
        figures.board([1] * 9, [0] * 9)
    with pytest.raises(ValueError, match="one length"):
        figures.board(DIGITS, CLUES, [0.5])
