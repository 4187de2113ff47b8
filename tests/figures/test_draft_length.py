"""Draft lengths beside those that would have been kept."""

import pytest

from specdec_lib import figures


def test_each_position_splits_into_kept_wasted_and_not_drafted():
    figure = figures.draft_lengths([3, 1, 2], [1, 4, 2])
    assert {bar.name: list(bar.y) for bar in figure.data} == {
        "kept": [1, 1, 2], "wasted": [2, 0, 0], "not drafted": [0, 3, 0]}
    title = figure.layout.title.text.replace("<br>", " ")
    assert "3 positions it keeps 4 drafted tokens, wastes 2 and misses 3" in title


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="one length"):
        figures.draft_lengths([1, 2], [1])


def test_a_rule_is_drawn_beside_speeds_that_do_not_know_its_parameter():
    figure = figures.speed_by_parameter([.1, .2, .3], [1.0, 1.3, 1.1], {"fixed 2": 1.2, "the oracle": 1.5}, "h", "svip")
    assert {line.name: list(line.y) for line in figure.data} == {
        "svip": [1.0, 1.3, 1.1], "fixed 2": [1.2] * 3, "the oracle": [1.5] * 3}
    title = figure.layout.title.text.replace("<br>", " ")
    assert title == "Best at 0.2: 1.30, against 1.20 for fixed 2, 1.50 for the oracle"
    assert "predicted" in figure.layout.yaxis.title.text


def test_every_round_is_drawn_where_it_was_drafted_and_wasted_tokens_below():
    turns = {"a": [(3, 1), (1, 1), (0, 0)], "b": [(1, 0)] * 5}
    figure = figures.stopping_points(turns, {"entropy": [.1, .2, None, .4, .5]},
                           list("vwxyz"))
    drawn = {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in figure.data[:3]}
    assert drawn["kept"] == [(1, 0), (3, 0)]
    assert drawn["the target's own"] == [(2, 0), (4, 0), (5, 0), *((x, 1) for x in range(1, 6))]
    assert drawn["wasted"] == [(2, .3), (3, .3), *((x, 1.3) for x in range(1, 6))]
    assert figure.layout.title.text.replace("<br>", " ") == (
        "Of 2 policies “a” writes these 5 tokens in the fewest rounds: 3")


def test_rounds_behind_the_shown_words_are_left_out():
    figure = figures.stopping_points({"a": [(2, 2), (2, 0), (1, 1)]}, {}, list("vwxy"))
    assert max(x for trace in figure.data for x in trace.x) == 4
    assert "fewest rounds: 2" in figure.layout.title.text
    with pytest.raises(ValueError, match="one length"):
        figures.stopping_points({"a": [(1, 1)]}, {"entropy": [.1]}, list("vw"))


def test_regret_is_drawn_in_per_cent_and_the_title_names_the_least_and_the_most():
    figure = figures.regrets({"svip": .25, "margin": .5})
    assert list(figure.data[0].x) == [25, 50]
    assert "predicted" in figure.layout.xaxis.title.text
    assert figure.layout.title.text.replace("<br>", " ") == (
        "“svip” takes 25% more time than the oracle, “margin” 50% more")
