"""A canvas as a grid: words and confidences in their cells, one symbol per role, lines of a Sudoku."""

import pytest

from specdec_lib import figures


def test_words_confidences_and_marks_stand_at_their_positions():
    figure = figures.canvas_grid(["5", "", "7", "1"], [None, None, .9, .4], ["given", "", "new", "revised"], 2,
                                 "two rows")
    grid, words, new, revised = figure.data
    assert [list(row) for row in grid.text] == [["<b>5</b>", ""], ["7", "1"]]
    assert [list(row) for row in grid.z] == [[None, None], [.9, .4]]
    assert list(zip(words.x, words.y, words.text, strict=True)) == [(1, 1, "<b>5</b>"), (2, 1, ""), (1, 2, "7"),
                                                                    (2, 2, "1")]
    assert (list(new.x), list(new.y), new.name) == ([1], [2], "written by this forward")
    assert (list(revised.x), list(revised.y)) == ([2], [2])
    assert new.marker.symbol != revised.marker.symbol
    assert not figure.layout.shapes


def test_given_words_are_drawn_before_any_confidence_is_known():
    grid, words = figures.canvas_grid(["5", "", "7"], [None] * 3, ["given", "", "given"], 2, "step 0").data
    assert not [value for row in grid.z for value in row if value is not None]
    assert grid.texttemplate is None, "Plotly draws no text of a heatmap without numbers"
    assert (words.mode, words.text) == ("text", ("<b>5</b>", "", "<b>7</b>"))
    assert (words.x, words.y) == ((1, 2, 1), (1, 1, 2))


def test_nine_by_nine_has_the_lines_of_a_sudoku_and_columns_of_one_length_are_asked_for():
    figure = figures.canvas_grid(["1"] * 81, [.5] * 81, [""] * 81, 9, "a board")
    assert len(figure.layout.shapes) == 4
    with pytest.raises(ValueError, match="one length"):
        figures.canvas_grid(["1"], [], [""], 1, "x")


def test_solved_shares_have_their_budgets_and_intervals():
    figure = figures.solved_by_forwards({"a": {16: (.5, (.4, .7)), 8: (.25, None)}, "b": {8: (.3, None)}}, "a leads")
    first = figure.data[0]
    assert list(first.y) == [.25, .5]
    assert [value and round(value, 6) for value in first.error_y.array] == [None, .2]
    assert list(figure.layout.xaxis.tickvals) == [8, 16]
    held = [figures.solved_by_forwards({"a": {n: (.5, None)}}, "a", (1, 100)).layout.xaxis.range for n in (8, 16)]
    assert held == [(pytest.approx(-.1), pytest.approx(2.1))] * 2, "the same under a slider"


def test_ticks_that_would_overlap_are_left_out():
    points = {at: (.5, None) for at in (2.0, 2.1, 2.666667, 13)}
    axis = figures.solved_by_forwards({"a": points}, "a title").layout.xaxis
    assert list(axis.tickvals) == [2.0, 2.666667, 13]
    assert list(axis.ticktext) == ["2", "2.67", "13"]
