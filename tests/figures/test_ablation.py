"""Figures of parts added one at a time: what is told apart and what is not, and that nothing is drawn twice."""

import pytest

from specdec_lib import figures


def test_a_side_is_faster_or_slower_only_where_the_whole_interval_says_so():
    figure = figures.ratios(["a", "b", "c", "d"], [1.4, .8, 1.1, 1.3], [(1.2, 1.6), (.7, .9), (.9, 1.3), None])
    assert figure.layout.title.text == "By their intervals, of 4 comparisons 1 are faster and 1 slower"
    assert list(figure.data[0].marker.symbol) == ["circle", "x", "circle-open", "circle-open"]
    legend = {trace.marker.symbol: trace.name for trace in figure.data[1:]}
    assert legend == {"circle": "interval above 1", "circle-open": "not told apart from 1", "x": "interval below 1"}
    assert len(figures.ratios(["c"], [1.1], [(.9, 1.3)]).data) == 2, "no entry for what does not occur"


def test_whiskers_reach_to_the_ends_of_the_interval_and_what_was_not_measured_is_left_out():
    figure = figures.ratios(["a", "b"], [None, 1.5], [None, (1.25, 2.0)])
    points = figure.data[0]
    assert list(points.x) == [1.5]
    assert list(points.y) == ["b"]
    assert list(points.error_x.array) == [.5]
    assert list(points.error_x.arrayminus) == [.25]


def test_the_parts_of_a_round_add_up_and_the_cheapest_method_is_named():
    figure = figures.round_split({"slow": {"when": 1, "what": 2, "target": 5, "how": 1},
                                  "fast": {"when": 1, "what": 1, "target": 4, "how": 0}})
    assert [sum(bar.x[place] for bar in figure.data) for place in (0, 1)] == [9, 6]
    assert figure.layout.title.text == "fast takes the least time per token: 6.0 ms"


def test_every_source_has_one_colour_in_all_methods():
    figure = figures.shares({"a": {"x": .25, "y": .75}, "b": {"y": 1.0}}, {"a": {"y": "2 tokens a round"}})
    x, y = figure.data
    assert (list(x.x), list(y.x)) == ([25, 0], [75, 100])
    assert list(y.hovertext) == ["2 tokens a round", ""]
    assert x.marker.color != y.marker.color
    assert figure.layout.title.text == "Of the rounds of b 100% are drafted by y"


def test_parts_of_rounds_that_may_overlap_are_no_shares_of_the_decode():
    figure = figures.time_split({"pearl": {"target": .6, "drafter": .3, "overhead": .1}})
    assert "40% of the time of its parts" in figure.layout.title.text.replace("<br>", " ")
    assert "decode" not in figure.layout.title.text + figure.layout.xaxis.title.text


def test_a_run_without_methods_is_drawn_and_says_so():
    for figure in (figures.time_split({}), figures.round_split({})):
        assert figure.layout.title.text == "No method was measured"
    for mix in ({}, {"a": {}}):
        assert figures.shares(mix).layout.title.text == "No round was measured"


def test_comparisons_without_their_intervals_are_refused():
    with pytest.raises(ValueError, match="intervals 1"):
        figures.ratios(["a", "b"], [1, 2], [None])
