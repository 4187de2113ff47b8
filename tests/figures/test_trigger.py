"""Figures of a trigger: what they count and what they leave unmarked."""

import pytest

from specdec_lib import figures


def test_the_histogram_counts_every_value_once_and_splits_a_bar_at_the_threshold():
    figure = figures.histogram([.1, .2, .3, .3, 2.0], threshold=.2, step=.25)
    below, above = figure.data
    assert list(below.y) == [2]
    assert list(above.y) == [2, 1]
    assert list(below.x) == [.125]
    assert list(above.x) == [.375, 2.125]
    assert figure.layout.title.text.startswith("40%")


def test_a_histogram_of_nothing_is_refused():
    with pytest.raises(ValueError, match="needs values"):
        figures.histogram([], 1.0)


def test_marks_stand_where_the_oracle_has_an_opinion():
    figure = figures.trigger([1.0] * 5, [None, .1, .2, .3, .4], 1.5, [False, True, True, True, False],
                             [None, True, False, None, True])
    marks = {trace.name: list(trace.x) for trace in figure.data if trace.mode == "markers"}
    assert marks == {"fires, and it pays": [2], "fires, and it does not pay": [3], "missed": [5]}
    assert figure.data[-1].y == (.4,), "a mark stands on the mean that was judged"
    assert "fires 2 times, 1 of them rightly" in figure.layout.title.text.replace("<br>", " ")


def test_a_rule_that_never_fires_has_no_precision_to_draw():
    figure = figures.precision_recall({"never": (0.0, None), "always": (1.0, .2)}, [(0.0, None), (.5, .3)])
    assert [trace.name for trace in figure.data] == ["every threshold", "always"]
    assert figure.layout.title.text.startswith("The most precise is always")
