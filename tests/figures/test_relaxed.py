"""Speed against quality: who is filled, what is joined, and where the whiskers end."""

import pytest

from specdec_lib import figures
from specdec_lib.figures.relaxed import Outcome

STRICT, LOOSE = Outcome(1.5, (1.25, 2.0), 1.0, None), Outcome(2.0, (1.5, 2.5), 0.75, (0.5, 0.875))


def drawn(chosen="loose"):
    return figures.tradeoff({"strict": STRICT, "loose": LOOSE}, "overlap", chosen, ["loose", "strict"])


def test_the_chosen_rule_is_filled_named_and_carries_its_intervals():
    line, strict, loose = drawn().data
    assert (strict.marker.symbol, loose.marker.symbol) == ("circle-open", "circle")
    assert loose.text == ("loose",) and strict.text is None
    assert (list(loose.error_x.array), list(loose.error_x.arrayminus)) == ([0.125], [0.25])
    assert (list(loose.error_y.array), list(loose.error_y.arrayminus)) == ([0.5], [0.5])
    assert drawn().layout.title.text == "loose: 2.00 times as fast as plain decoding, overlap 0.750"


def test_a_measure_without_an_interval_has_no_whiskers():
    _, strict, _ = drawn("strict").data
    assert strict.error_x.array is None and list(strict.error_y.array) == [0.5]


def test_the_settings_of_a_rule_are_joined_in_the_order_given():
    line = drawn().data[0]
    assert (list(line.x), list(line.y)) == ([0.75, 1.0], [2.0, 1.5])
    assert len(figures.tradeoff({"strict": STRICT}, "overlap", "strict").data) == 1


def test_a_rule_that_was_not_measured_cannot_be_chosen():
    with pytest.raises(KeyError):
        drawn("looser")
