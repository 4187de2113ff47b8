"""Stacks as figures: every verification in its row, the chosen path, and predictions beside measurements."""

import pytest

from specdec_lib import figures
from specdec_lib.figures.hierarchy import VerifiedRow

ROWS = [VerifiedRow("1  middle ← small", 1, ("a", "b", "c"), 1, "d"),
        VerifiedRow("1  target ← middle", 1, ("a", "d"), 2), VerifiedRow("2  target ← middle", 3, (), 0, "e")]


def test_what_was_accepted_rolled_back_and_added_stands_at_its_token_and_in_its_row():
    figure = figures.nested_rounds(ROWS)
    kept, lost, own = figure.data
    assert (list(kept.x), list(kept.y), list(kept.text)) == ([1, 1, 2], [0, 1, 1], ["a", "a", "d"])
    assert (list(lost.x), list(lost.y), list(lost.text)) == ([2, 3], [0, 0], ["b", "c"])
    assert (list(own.x), list(own.y), list(own.text)) == ([2, 3], [0, 2], ["d", "e"])
    assert list(figure.layout.yaxis.ticktext) == [row.label for row in ROWS]
    assert "3 verifications roll back 2 of the 5 tokens" in figure.layout.title.text.replace("<br>", " ")


def test_the_chosen_path_is_drawn_with_its_blocks_and_named():
    figure = figures.stack_path(["small", "middle", "target"], [.02, .2, 1.0], [.02, .1, .4], [0], [5])
    quiet, chosen, models = figure.data
    assert list(chosen.x) == [.02, 1.0], "past the middle"
    assert list(chosen.y) == [.02, .4]
    assert figure.layout.shapes[0].y0 == figure.layout.shapes[0].y1 == 1.0, "plain decoding"
    assert list(quiet.x) == [.02, .2, None, .2, 1.0, None]
    assert list(models.text) == ["small", "middle", "target"]
    assert list(models.textposition) == ["top center"] * 3
    near = figures.stack_path(["small", "middle", "target"], [.08, .1, 1.0], [.08, .1, .7], [1], [2]).data[2]
    assert list(near.textposition) == ["top left", "top right", "top center"], "names of near marks lie apart"
    label = next(note for note in figure.layout.annotations if note.text == "T = 5")
    assert label.yshift < 0, "below the path, where no name stands"
    assert figure.layout.yaxis.range[0] < 0, "a mark near zero is whole"
    assert figure.layout.title.text == "Predicted best: small (T = 5)"
    fast = figures.stack_path(["small", "target"], [.1, 1.0], [.1, .5], [0], [2], speed=2.0)
    assert fast.layout.title.text == "Predicted best: small (T = 2), 2.00 times plain speed"
    alone = figures.stack_path(["small", "target"], [.9, 1.0], [.9, 1.0], [], [])
    assert alone.layout.title.text == "Predicted best: no drafter"


def test_predictions_near_what_was_measured_are_counted():
    figure = figures.predicted_measured(["a", "b", "c"], [10, 10, 10], [10.5, 9.2, 20], "ms")
    assert figure.layout.title.text.startswith("2 of 3 predictions lie within 10%")
    assert list(figure.data[-1].y) == [10.5, 9.2, 20]
    above = next(line for line in figure.data if "above" in line.name)
    equal = next(line for line in figure.data if line.name == "equal")
    assert list(equal.x) == list(equal.y)
    assert above.x[0] / above.y[0] == pytest.approx(1.1), "the prediction is a tenth above the measurement"


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="one length"):
        figures.predicted_measured(["a"], [1.0, 2.0], [1.0], "ms")
    with pytest.raises(ValueError, match="one length"):
        figures.stack_path(["a", "b"], [.1, 1.0], [.1, 1.0], [0], [])
