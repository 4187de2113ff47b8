"""Figures of retrieval: which candidates are drawn as offered, and what the title counts."""

import pytest

from specdec_lib import figures


def test_candidates_are_split_by_whether_they_were_offered_and_the_title_counts_them():
    figure = figures.candidates([4, 8, 9], [.5, .35, .65], [True, False, True], .5, ["a", "b", "c"])
    offered, other = figure.data
    assert (list(offered.x), list(offered.y), list(offered.text)) == ([4, 9], [.5, .65], ["a", "c"])
    assert (list(other.x), list(other.y), list(other.text)) == ([8], [.35], ["b"])
    assert figure.layout.title.text == "2 of 3 candidates are offered"


def test_the_least_score_is_drawn_where_a_rule_has_one():
    assert not figures.candidates([4], [.5], [True]).layout.shapes
    assert not figures.candidates([4], [.5], [True], 0.0).layout.shapes            # a rule that drops nothing
    assert figures.candidates([4], [.5], [True], .3).layout.shapes[0].y0 == .3


def test_candidates_without_a_score_are_refused():
    with pytest.raises(ValueError, match="starts 2, scores 1"):
        figures.candidates([4, 8], [.5], [True, True])
