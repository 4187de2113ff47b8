"""Figures of a sweep: what is marked as best, what is broken, what is joined, and where whiskers end."""

import pytest

from specdec_lib import figures


def test_a_contour_marks_what_was_run_and_the_best_of_it():
    figure = figures.parameter_contour(("theta", "least"), [1, 2], [.1, .2], [[1.0, 3.0], [None, 2.0]], "tau")
    plane, ran, best = figure.data
    assert [list(row) for row in plane.z] == [[1.0, 3.0], [None, 2.0]]
    assert (list(best.x), list(best.y)) == (["2"], ["0.1"])
    assert sorted(zip(ran.x, ran.y, strict=True)) == [("1", "0.1"), ("2", "0.2")]
    assert figure.layout.title.text == "tau: best 3.00, at theta 2 and least 0.1"
    least = figures.parameter_contour(("a", "b"), [1, 2], [.1], [[1.0, 3.0]], "nll", more_is_better=False)
    assert list(least.data[2].x) == ["1"]
    with pytest.raises(ValueError, match="one known value"):
        figures.parameter_contour(("a", "b"), [1], [1], [[None]], "tau")


def test_lines_of_settings_end_at_their_measure_and_the_best_stands_out():
    figure = figures.parallel_settings({"theta": [1.0, 2.0, 4.0, None], "rule": ["a", "b", "a", "b"]}, "tau",
                                       [1.0, 2.0, 3.0, 1.5])
    rest, best = figure.data[:2]
    assert list(best.x) == ["theta", "rule", "tau", None]
    assert list(best.y) == [1.0, 0.0, 1.0, None]
    assert list(rest.y)[:4] == [pytest.approx(1 / 3), 1.0, .5, None]     # ranked below the best: tau 2.0
    assert list(rest.x)[4:8] == ["theta", "rule", "tau", None], "no line is broken before its measure"
    assert rest.y[4] < 0, "tau 1.5 has no theta, which stands below the values"
    none = [(x, y) for x, y, text in zip(*(figure.data[-1][key] for key in ("x", "y", "text")), strict=True)
            if text == "none"]
    assert none == [("theta", rest.y[4])]
    assert figure.layout.yaxis.range[0] < rest.y[4]
    assert best.name == "best"
    assert figure.layout.title.text == "Best tau, 3.00: theta 4.0, rule a"
    assert figures.parallel_settings({}, "nll", [2.0, 1.0], more_is_better=False).data[1].y[0] == 0.0


def test_the_front_is_joined_numbered_and_alone_has_whiskers():
    figure = figures.settings_front({"a": (1.0, 2.0), "b": (2.0, 1.0), "c": (.5, .5)}, ["b", "a"], "x", "y",
                                    {"a": ((.5, 2.0), None), "b": (None, None), "c": ((0, 1), (0, 1))})
    rest, front = figure.data
    assert (list(rest.x), list(rest.hovertext)) == ([.5], ["c"])
    assert (list(front.x), list(front.text), list(front.hovertext)) == ([2.0, 1.0], ["1", "2"], ["b", "a"])
    assert list(front.error_x.array) == [None, 1.0]
    assert figure.layout.title.text.startswith("2 of 3 settings")
    near = figures.settings_front({"a": (1, 1), "b": (1, .99), "c": (0, 0)}, "abc", "x", "y").data[1]
    assert list(near.textposition) == ["top right", "bottom right", "top right"]
    with pytest.raises(ValueError, match="is no point"):
        figures.settings_front({}, ["z"], "x", "y")


def test_bars_of_sensitivity_are_percents_and_only_a_whole_interval_above_one_is_sure():
    figure = figures.sensitivity_bars(["theta", "least"], [1.5, 1.02], [(1.2, 1.8), (.9, 1.1)], "tau")
    bar = figure.data[0]
    assert list(bar.x) == pytest.approx([50, 2])
    assert list(bar.error_x.array) == pytest.approx([30, 8])
    assert list(bar.error_x.arrayminus) == pytest.approx([30, 12])
    assert figure.layout.title.text == "1 of 2 parameters surely matter for tau"
    assert [shape.x0 for shape in figure.layout.shapes] == [0]
    assert list(figures.sensitivity_bars(["x", "y"], [None, 1.5], [None, None], "tau").data[0].x) == [None, 50]
    assert figures.sensitivity_bars([], [], [], "tau").layout.title.text == "No parameter has two values"


def test_an_effect_that_equal_work_has_too_is_not_counted_and_a_line_marks_it():
    figure = figures.sensitivity_bars(["theta", "least"], [1.5, 1.1], [(1.2, 1.8), (1.05, 1.2)], "tau", clock=1.13)
    assert figure.layout.title.text == "1 of 2 parameters surely matter for tau"
    assert [shape.x0 for shape in figure.layout.shapes] == pytest.approx([0, 13])
