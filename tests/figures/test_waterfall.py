"""Openings: a step's bar spans the speeds before and after it, and the break-even curve is verification plus draft."""

import pytest

from specdec_lib import figures

NAMES, FACTORS, SPANS = ["eagle2", "+ trigger", "+ more"], [2.0, 0.5, 3.0], [(1.8, 2.2), (0.4, 0.6), None]


def test_every_bar_spans_the_speed_before_and_after_its_step_and_losses_have_their_own_colour():
    gains, losses, line = figures.waterfall(NAMES, FACTORS, SPANS).data
    assert (list(gains.x), list(gains.base), list(gains.y)) == (["eagle2", "+ more"], [1.0, 1.0], [1.0, 2.0])
    assert (list(losses.x), list(losses.base), list(losses.y)) == (["+ trigger"], [1.0], [1.0])
    assert gains.marker.color != losses.marker.color
    assert list(line.y) == [1.0, 2.0, 1.0, 3.0]


def test_a_step_whose_interval_holds_one_neither_gains_nor_loses():
    figure = figures.waterfall(["a", "b", "c"], [0.98, 1.02, 0.9], [(0.95, 1.01), (0.99, 1.05), (0.8, 0.95)])
    losses, unclear, _ = figure.data
    assert (list(losses.x), list(unclear.x)) == (["c"], ["a", "b"])
    assert "not told apart" in unclear.name
    assert [bars.name for bars in figures.waterfall(["even"], [1.0], [None]).data][0] == "the step is not told apart"
    assert figure.layout.title.text.replace("<br>", " ").endswith("; c loses")


def test_the_title_gives_the_whole_and_names_the_step_that_loses():
    figure = figures.waterfall(NAMES, FACTORS, SPANS)
    assert figure.layout.title.text.replace("<br>", " ") == ("From ar to + more: 3.00 times plain decoding; "
                                                             "+ trigger loses")
    said = [note.text for note in figure.layout.annotations]
    assert said == ["× 2.00<br>(1.80 to 2.20)", "× 0.50<br>(0.40 to 0.60)", "× 3.00<br>(no interval)"]


def test_an_interval_that_excludes_one_is_not_written_as_if_it_ended_there():
    figure = figures.waterfall(["a", "b"], [1.03, 0.97], [(1.003, 1.061), (0.94, 1.0)])
    assert [note.text for note in figure.layout.annotations] == [
        "× 1.03<br>(1.003 to 1.061)", "× 0.97<br>(0.94 to 1.00)"]


def test_factors_without_their_intervals_are_refused():
    with pytest.raises(ValueError, match="intervals 1"):
        figures.waterfall(["a", "b"], [1, 2], [None])


def test_the_break_even_curve_moves_with_verification_and_the_axes_do_not():
    points, paper = {"ours": (0.2, 1.3), "free": (0.0, 2.0)}, {"theirs": (1.0, 7.0)}
    one, two = (figures.break_even_plane(points, verify, paper, (0.01, 3.0), (0.9, 8.0)) for verify in (1.0, 1.5))
    assert one.data[0].y[0] == pytest.approx(1.01)
    assert two.data[0].y[0] == pytest.approx(1.51)
    assert one.layout.xaxis.range == two.layout.xaxis.range
    assert one.layout.yaxis.range == two.layout.yaxis.range
    assert "2 of 2" in one.layout.title.text
    assert "1 of 2" in two.layout.title.text
    assert list(one.data[2].x) == [0.01]               # free: drawn at the edge of a logarithmic axis
