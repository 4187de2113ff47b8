"""Speed against quality: who is named, what is joined, who is marked as lossless, and where the whiskers end."""

import pytest

from specdec_lib import figures
from specdec_lib.figures.tradeoff import STRICT, TradeoffPoint

OUTCOMES = {"strict": TradeoffPoint(1.5, (1.25, 2.0), 1.0, None),
            "loose": TradeoffPoint(2.0, (1.5, 2.5), 0.75, (0.5, 0.875)),
            "other": TradeoffPoint(3.0, None, 0.5, None)}
CURVES = {"ours": ["loose", "strict"]}


def drawn(chosen="loose", **more):
    return figures.tradeoff(OUTCOMES, "overlap", CURVES, chosen, **more)


def test_the_chosen_setting_is_named_and_alone_carries_its_intervals():
    curve, rest = drawn().data
    assert list(curve.text) == ["loose", ""]
    assert list(rest.text) == [""]
    assert list(curve.marker.size) == [15, 10]
    assert (list(curve.error_x.array), list(curve.error_x.arrayminus)) == ([0.5, None], [0.5, None])
    assert (list(curve.error_y.array), list(curve.error_y.arrayminus)) == ([0.125, None], [0.25, None])
    assert drawn().layout.title.text == "loose: 2.00 times as fast as plain decoding, overlap 0.750"


def test_where_none_is_chosen_all_carry_theirs_and_one_without_an_interval_has_no_whiskers():
    curve, rest = drawn("").data
    assert list(curve.error_x.array) == [0.5, 0.5]
    assert list(curve.error_y.array) == [0.125, None]
    assert rest.error_x.visible is False


def test_the_settings_of_a_rule_are_joined_in_the_order_given_and_others_are_not():
    curve, rest = drawn().data
    assert (list(curve.x), list(curve.y)) == ([2.0, 1.5], [0.75, 1.0])
    assert "lines" in curve.mode
    assert (list(rest.x), list(rest.y)) == ([3.0], [0.5])
    assert "lines" not in rest.mode
    assert len(figures.tradeoff(OUTCOMES, "overlap", {"one": ["strict"], "two": ["loose"]}).data) == 3


def test_what_is_lossless_has_a_symbol_of_its_own():
    curve, rest = drawn(lossless=("strict",)).data
    assert list(curve.marker.symbol) == ["circle", STRICT]
    assert list(rest.marker.symbol) == ["circle-open"]


def test_the_axes_say_against_what_and_a_line_shows_where_plain_decoding_lies():
    figure = drawn(base="its lossless rule", level=1.0)
    assert figure.layout.xaxis.title.text.startswith("times as fast as its lossless rule")
    assert figure.layout.shapes[0].y0 == figure.layout.shapes[0].y1 == 1.0
    assert not drawn().layout.shapes


def test_a_method_without_the_measure_is_left_out():
    outcomes = OUTCOMES | {"blank": TradeoffPoint(1, None, None, None)}
    curve = figures.tradeoff(outcomes, "score", {"r": ["strict", "blank"]}).data[0]
    assert list(curve.x) == [1.5]
    assert list(curve.hovertext) == ["strict"]
    named = figures.tradeoff(outcomes, "score", {"r": ["blank"]}, "blank").layout.title.text
    assert named == "blank: 1.00 times as fast as plain decoding, score not measured"


def test_a_rule_that_was_not_measured_cannot_be_chosen():
    with pytest.raises(KeyError):
        drawn("looser")


def test_choosing_another_point_does_not_move_the_axes():
    one, two = (figures.tradeoff(OUTCOMES, "overlap", CURVES, chosen).layout for chosen in ("strict", "loose"))
    assert one.xaxis.range == two.xaxis.range
    assert one.yaxis.range == two.yaxis.range
    assert 1.0 < one.xaxis.range[0] < 1.25 < 3.0 < one.xaxis.range[1] < 3.2


def test_a_rule_keeps_its_colour_where_another_has_no_settings():
    with_gap = figures.tradeoff(OUTCOMES, "overlap", {"gone": [], "ours": ["loose"]}).data[0]
    both = figures.tradeoff(OUTCOMES, "overlap", {"gone": ["strict"], "ours": ["loose"]}).data[1]
    assert (with_gap.name, with_gap.marker.color) == ("ours", both.marker.color)
    assert with_gap.marker.color != figures.tradeoff(OUTCOMES, "overlap", {"ours": ["loose"]}).data[0].marker.color
