"""The pipeline's picture: a bar for each span, where it belongs, with its own look when cancelled."""

import pytest

from specdec_lib import figures

SPANS = {"stages": [0, 1, 0], "tokens": [0, 0, 1], "starts": [0, 2, 2], "ends": [2, 6, 4],
         "wanted": [True, True, False], "names": ["below", "above"]}


def test_bars_lie_where_their_token_is_and_cancelled_ones_look_different():
    kept, lost = figures.pipeline(**SPANS).data
    assert (list(kept.base), list(kept.x), list(kept.y)) == ([0.0, 2.0], [2.0, 4.0], ["below", "above"])
    assert (list(lost.base), list(lost.x), list(lost.text)) == ([2.0], [2.0], ["1"])
    assert kept.marker.color != lost.marker.color
    assert kept.marker.pattern.shape != lost.marker.pattern.shape


def test_the_title_gives_the_share_of_cancelled_time():
    assert figures.pipeline(**SPANS).layout.title.text.startswith("25% of the busy time")
    assert figures.pipeline(**SPANS, title="Mine").layout.title.text == "Mine"


def test_the_time_axis_can_be_fixed():
    assert figures.pipeline(**SPANS).layout.xaxis.range == (0.0, 6.0)
    assert figures.pipeline(**SPANS, longest=50).layout.xaxis.range == (0.0, 50.0)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="ends 2"):
        figures.pipeline(**{**SPANS, "ends": [2, 6]})
