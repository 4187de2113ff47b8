"""Curves under a slider keep their axes: a fixed range, and a line at the level that matters."""

from specdec_lib import figures


def test_a_range_given_is_kept_whatever_is_drawn_and_the_level_is_a_line():
    for lines in ({"a": [1, 2]}, {"a": [30, 40]}):
        figure = figures.curves([1, 2], lines, "x", "y", "a title", (0, 6), 1.0)
        assert list(figure.layout.yaxis.range) == [0, 6]
        assert [shape.y0 for shape in figure.layout.shapes] == [1.0]


def test_only_lines_with_a_range_have_whiskers_and_they_end_there():
    lines = {"a": [2, 3], "b": [1, 1]}
    one, other = figures.curves([1, 2], lines, "x", "y", "a title", spans={"a": [(1, 4), None]}).data
    assert (list(one.error_y.array), list(one.error_y.arrayminus)) == ([2, None], [1, None])
    assert other.error_y.visible is False


def test_without_a_range_the_axis_follows_the_lines():
    figure = figures.curves([1, 2], {"a": [1, 2]}, "x", "y", "a title")
    assert figure.layout.yaxis.range is None
    assert not figure.layout.shapes


def test_points_are_not_joined():
    figure = figures.curves([1, 2], {"a": [1, 2], "b": [2, None]}, "x", "y", "a title", points=["b"])
    assert [trace.mode for trace in figure.data] == ["lines+markers", "markers"]


def test_the_milliseconds_of_a_cost_curve_can_be_limited():
    assert list(figures.cost_curve([1, 2], [.02, .4], top=100).layout.yaxis.range) == [0, 100]
    assert figures.cost_curve([1, 2], [.02, .4]).layout.yaxis.rangemode == "tozero"


def test_the_colour_bar_of_a_speed_map_says_when_faster_speeds_share_its_last_colour():
    for speeds, last in (([[1, 2], [0, 9.7]], "4 and more"), ([[1, 2], [0, 3]], "3")):
        bar = figures.speed_map([.1, .9], [0, .3], speeds).data[0].colorbar
        assert (bar.tickvals[-1], bar.ticktext[-1]) == (float(last[0]), last)


def test_methods_whose_first_tokens_are_accepted_as_often_as_shown_are_named_together():
    def title(**lines):
        return figures.conditional_acceptance(lines).layout.title.text.replace("<br>", " ")

    assert title(a=[.451, .2], b=[.449], c=[.3]).endswith("most often with “a” and “b”: 45%")
    assert title(a=[.48], b=[.45]).endswith("most often with “a”: 48%")


def test_each_depth_has_a_tick_until_there_are_too_many_to_read():
    assert figures.conditional_acceptance({"a": [.5] * 8}).layout.xaxis.dtick == 1
    assert figures.conditional_acceptance({"a": [.5] * 40}).layout.xaxis.dtick is None
