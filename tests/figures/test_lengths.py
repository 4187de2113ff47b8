"""The figure of lengths: what is drawn is what was handed in."""

import pytest

from specdec_lib import figures


def test_every_round_shows_what_was_asked_generated_and_accepted():
    figure = figures.draft_lengths_by_round([8, 4, 5], [8, 3, 5], [2, 3, 0], [2, 3, 1])
    assert {trace.name: list(trace.y) for trace in figure.data} == {
        "accepted": [2, 3, 0], "generated": [8, 3, 5], "asked for": [8, 4, 5], "best there": [2, 3, 1]}
    assert all(list(trace.x) == [1, 2, 3] for trace in figure.data)
    assert {trace.name: trace.cliponaxis for trace in figure.select_traces({"mode": "markers"})} == {
        "generated": False, "best there": False}    # whole at 0
    assert figure.layout.title.text.replace("<br>", " ") == (
        "5 of 16 generated tokens are accepted in 3 rounds; lengths from 4 to 8")


def test_without_an_oracle_none_is_drawn_and_columns_have_one_length():
    assert len(figures.draft_lengths_by_round([4], [4], [1]).data) == 3
    with pytest.raises(ValueError, match="length"):
        figures.draft_lengths_by_round([4, 4], [4], [1])


def test_two_rules_are_drawn_on_one_axis_that_reaches_the_longest_length():
    figure = figures.lengths_by_rule({"printed": [8, 4, 4], "corrected": [8, 2]}, {"printed": [1, 0, 2],
                                                                                   "corrected": [3, 0]}, 30)
    assert {trace.name: list(trace.y) for trace in figure.data} == {
        "printed, asked for": [8, 4, 4], "printed, accepted": [1, 0, 2],
        "corrected, asked for": [8, 2], "corrected, accepted": [3, 0]}
    assert list(figure.layout.yaxis.range) == [-.3, 31]
    assert "printed: 5.3 tokens in 3 rounds" in figure.layout.title.text.replace("<br>", " ")
