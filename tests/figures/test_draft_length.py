"""Draft lengths beside those that would have been kept."""

import pytest

from specdec_lib import figures


def test_each_place_splits_into_kept_in_vain_and_not_drafted():
    figure = figures.draft_lengths([3, 1, 2], [1, 4, 2])
    assert {bar.name: list(bar.y) for bar in figure.data} == {
        "kept": [1, 1, 2], "in vain": [2, 0, 0], "not drafted": [0, 3, 0]}
    title = figure.layout.title.text.replace("<br>", " ")
    assert "3 places it would keep 4 tokens, draft 2 in vain, and miss 3" in title


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="one length"):
        figures.draft_lengths([1, 2], [1])


def test_a_rule_is_drawn_beside_speeds_that_do_not_know_its_parameter():
    figure = figures.against([.1, .2, .3], [1.0, 1.3, 1.1], {"fixed 2": 1.2, "the oracle": 1.5}, "h", "svip")
    assert {line.name: list(line.y) for line in figure.data} == {
        "svip": [1.0, 1.3, 1.1], "fixed 2": [1.2] * 3, "the oracle": [1.5] * 3}
    title = figure.layout.title.text.replace("<br>", " ")
    assert title == "Best at 0.2: 1.30, against 1.20 for fixed 2, 1.50 for the oracle"
    assert "predicted" in figure.layout.yaxis.title.text
