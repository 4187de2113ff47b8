"""Grouped bars of distributions."""

from specdec_lib import figures


def test_a_missing_value_has_no_bar_and_no_label():
    one, other = figures.distributions(["a", "b"], {"x": [0.25, None], "y": [1.0, 0.5]}, "title").data
    assert (list(one.y), list(one.text)) == ([0.25, None], ["0.25", ""])
    assert (list(other.y), list(other.text)) == ([1.0, 0.5], ["1.00", "0.50"])
