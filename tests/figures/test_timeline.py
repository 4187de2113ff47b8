"""Figures along an output: a source keeps its row and look, and a short text stands on the axis."""

from specdec_lib import figures


def looks(by_token, order=()):
    figure = figures.sources(by_token, order=order)
    return {trace.name: (trace.marker.color, trace.marker.symbol) for trace in figure.data}, figure.layout.yaxis


def test_sources_in_a_given_order_keep_row_colour_and_symbol_whichever_drafted_more():
    (one, rows), (two, again) = (looks(said, ("a", "b")) for said in (["a", "a", "b", ""], ["a", "b", "b", ""]))
    assert one == two
    assert rows.categoryarray == again.categoryarray == ("a", "b", "target")
    assert rows.range == again.range == (2.5, -0.5)


def test_sources_without_an_order_stand_by_their_number_of_tokens():
    found, rows = looks(["b", "b", "a", ""])
    assert list(found) == ["b", "a", "target"]
    assert rows.autorange == "reversed"


def test_words_of_a_short_text_stand_on_the_axis_and_those_of_a_long_one_do_not():
    assert figures.match_lengths([0, 1], words=["the", "cat"]).layout.xaxis.ticktext == ("the", "cat")
    assert figures.match_lengths([0] * 25, words=["the"] * 25).layout.xaxis.ticktext is None


def test_the_limit_of_a_rule_is_named_in_a_legend():
    ruled, free = figures.match_lengths([0, 1], shortest=2).layout, figures.match_lengths([0, 1]).layout
    assert ([one.name for one in ruled.shapes], ruled.showlegend) == (["draft from 2"], True)
    assert (list(free.shapes), free.showlegend) == ([], False)


def test_a_signal_counts_where_drafting_stopped_and_the_target_has_its_own_colour():
    stopped, quiet = (figures.signal([1.0, 2.0, 3.0], stops=stops).layout.title.text for stops in ((1,), ()))
    assert (stopped, quiet) == ("Drafting stops at 1 of 3 tokens", "The entropy along the output")
    found, _ = looks(["a", "a", ""])
    assert found["target"][0] == figures.PALETTE["target"] != found["a"][0]
