"""Training figures: what was computed has no marks, a lone point can be seen, and numbers above bars have room."""

from specdec_lib import figures


def test_a_law_has_no_marks_and_a_run_of_one_point_a_large_one():
    figure = figures.training_curves({"ends": [(1, 1.2), (2, 1.3)], "law": [(1, 1.2), (9, 1.9)], "far": [(9, 2.1)]},
                                     laws=["law"])
    ends, law, far = figure.data
    assert (ends.mode, law.mode, far.mode) == ("lines+markers", "lines", "markers")
    assert far.marker.size > ends.marker.size


def test_the_numbers_above_the_highest_bars_are_inside_the_figure():
    crowd = figures.gains([str(n) for n in range(11)], {"untrained": [1.0] * 11, "trained": [3.0] * 10 + [None]})
    low, high = crowd.layout.yaxis.range
    assert low == 0
    assert high >= 3.5                                 # upright numbers need more room
    assert figures.gains(["eagle"], {"trained": [2.0]}).layout.yaxis.range[1] > 2.1
    assert figures.gains([], {"trained": []}).layout.yaxis.range[1] > 1
