"""The map of exits: every cell with its number, the best one marked, prediction and measurement kept apart."""

import pytest

from specdec_lib import figures
from specdec_lib.figures.theme import contrast

SPEEDS = [[1.06, 1.11, None], [.97, .94, .88]]


def test_the_best_cell_is_marked_and_named():
    figure = figures.early_exit_grid([5, 10], [1, 2, 3], SPEEDS, "predicted")
    assert figure.layout.title.text == "Predicted: at best 1.11 times plain speed, exit 5, depth 2"
    mark, = figure.layout.shapes
    assert (mark.name, mark.x0, mark.x1, mark.y0, mark.y1) == ("the best cell", .5, 1.5, -.5, .5)
    assert (figure.data[0].x[1], figure.data[0].y[0]) == ("2", "5"), "second column, first row"


def test_every_cell_says_its_number_and_a_measured_one_its_interval():
    spans = [[(1.0, 1.1), None, None], [None, (.9, 1.0), None]]
    figure = figures.early_exit_grid([5, 10], [1, 2, 3], SPEEDS, "measured", spans)
    assert [list(row) for row in figure.data[0].text] == [["1.06<br>1.00–1.10", "1.11", ""],
                                                          ["0.97", "0.94<br>0.90–1.00", "0.88"]]
    assert [list(row) for row in figure.data[0].z] == SPEEDS
    assert "measured" in figure.data[0].colorbar.title.text
    assert "predicted" not in str(figure)


def test_a_contour_shows_where_drafting_begins_to_pay_and_needs_two_of_each():
    line = figures.early_exit_grid([5, 10], [1, 2, 3], SPEEDS, "predicted").data[1]
    assert line.type == "contour"
    assert (line.contours.start, line.contours.end) == (1, 1)
    assert line.showlegend
    assert "contour" not in [each.type for each in figures.early_exit_grid([5], [1, 2], [[1.1, .9]], "predicted").data]
    assert not figures.early_exit_grid([5, 10], [1, 2], [[.9, .8], [.7, .6]], "predicted").data[1].showlegend
    lonely = figures.early_exit_grid([5, 10], [1, 2], [[1.02, .8], [.7, .6]], "measured")
    assert [each.type for each in lonely.data] == ["heatmap"], "around one cell the line would be a scrap"


def test_numbers_are_read_on_the_darkest_and_on_the_lightest_cell():
    cells = figures.early_exit_grid([5, 10], [1, 2, 3], SPEEDS, "predicted").data[0]
    for _, colour in cells.colorscale:
        assert contrast(cells.textfont.color, {"white": "#ffffff"}.get(colour, colour)) > 4.5


def test_rows_of_other_lengths_and_an_empty_map_are_refused():
    with pytest.raises(ValueError, match="one length"):
        figures.early_exit_grid([5], [1, 2], [[1.0]], "predicted")
    with pytest.raises(ValueError, match="known"):
        figures.early_exit_grid([5], [1], [[None]], "predicted")
