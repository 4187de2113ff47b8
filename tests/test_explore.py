"""explore: the same figure function, moved live, shown still, or stepped inside an exported page."""

import json
import re
from html import unescape

import ipywidgets as widgets
import plotly.graph_objects as go
import pytest

from specdec_lib import figures, show
from specdec_lib.explore import Choices, Screen, explore
from specdec_lib.types import Refusal


def bars(k: int, alpha: float = 0.5) -> go.Figure:
    return figures.match_lengths([k, 1], title=f"k is {k} and alpha is {alpha}")


def line(k: int) -> show.Html:
    return show.text(f"k is {k}")


@pytest.fixture(name="mode")
def _mode(monkeypatch):
    return lambda name: monkeypatch.setenv("SPECDEC_EXPLORE", name)


def test_live_is_the_default_and_moving_a_slider_redraws(monkeypatch):
    monkeypatch.delenv("SPECDEC_EXPLORE", raising=False)
    box = explore(bars, k=Choices(1, 2, 4), alpha=0.8)
    slider, view = box.children
    slider.value = 4
    assert isinstance(view, go.FigureWidget)
    assert list(view.data[0].y) == [4, 1]
    assert view.layout.title.text == "k is 4 and alpha is 0.8"


def test_live_redraws_when_the_number_of_traces_changes(mode):
    mode("live")
    box = explore(lambda k: figures.curves([1], {str(i): [i] for i in range(k)}, "x", "y", f"{k} lines"),
                  k=Choices(1, 3))
    box.children[0].value = 3
    assert [trace.name for trace in box.children[1].data] == ["0", "1", "2"]


def test_live_text_is_an_html_widget(mode):
    mode("live")
    box = explore(line, k=Choices(1, 2))
    box.children[0].value = 2
    assert isinstance(box.children[1], widgets.HTML)
    assert "k is 2" in box.children[1].value


def test_a_live_failure_is_not_swallowed(mode):
    mode("live")
    box = explore(lambda k: bars(k) if k < 2 else 1 / 0, k=Choices(1, 2))
    with pytest.raises(ZeroDivisionError):
        box.children[0].value = 2


def test_static_is_the_figure_at_its_first_values(mode):
    mode("static")
    assert explore(bars, k=Choices(1, 2, start=2)).layout.title.text == "k is 2 and alpha is 0.5"


def test_html_holds_every_step_and_shows_one(mode):
    mode("html")
    figure = explore(bars, k=Choices(1, 2, 4, start=2), alpha=Choices(0.5, 0.9))
    assert [trace.visible for trace in figure.data] == [False, True, False]
    steps = figure.layout.sliders[0].steps
    assert [step.label for step in steps] == ["1", "2", "4"]
    assert steps[2].args[0]["visible"] == [False, False, True]
    assert steps[2].args[1]["title"]["text"] == "k is 4 and alpha is 0.5"
    assert figure.layout.sliders[0].currentvalue.prefix == "alpha = 0.5; k = "


def test_html_leaves_room_for_the_slider_at_every_step(mode):
    mode("html")
    one = lambda k: figures.tree(["a"] * k, [-1] * k)  # noqa: E731
    figure = explore(one, k=Choices(1, 6))
    heights = [step.args[1]["height"] for step in figure.layout.sliders[0].steps]
    assert heights == [one(1).layout.height + 90, one(6).layout.height + 90]
    assert figure.layout.height == heights[0]


def test_html_clears_lines_that_the_next_step_does_not_have(mode):
    mode("html")
    figure = explore(lambda bar: figures.match_lengths([1, 2], shortest=bar), bar=Choices(2, None))
    shapes = [step.args[1]["shapes"] for step in figure.layout.sliders[0].steps]
    assert len(shapes[0]) == 1
    assert len(shapes[1]) == 0


def test_the_labels_of_a_slider_may_hold_quotes(mode):
    mode("html")
    page = explore(lambda k: show.text(k), k=Choices('sam(mode="first")', "</script>"))
    [labels] = re.findall(r'data-v="([^"]*)"', page.html)
    assert json.loads(unescape(labels)) == ['sam(mode="first")', "</script>"]


def test_html_of_text_hides_all_pages_but_one(mode):
    mode("html")
    page = explore(line, k=Choices(1, 2, start=2))
    assert page.html.count('class="page" hidden') == 1
    assert page.html.count('class="page"') == 2
    assert repr(page) == "k is 2"


def test_too_many_exported_steps_are_refused(mode):
    mode("html")
    with pytest.raises(ValueError, match="13 values: an exported slider takes 12"):
        explore(bars, k=Choices(*range(13)))


def test_an_unknown_mode_is_refused(mode):
    mode("video")
    with pytest.raises(Refusal, match="one of live, static, html"):
        explore(bars, k=Choices(1))


def test_nothing_to_move_is_refused(mode):
    mode("live")
    with pytest.raises(ValueError, match="at least one Choices"):
        explore(bars, k=1)


def test_a_start_that_is_no_value_is_refused():
    with pytest.raises(ValueError, match="starts at 3"):
        Choices(1, 2, start=3)


def test_a_screen_redraws_in_live_mode_and_shows_nothing_elsewhere(monkeypatch):
    first, later = figures.training_curves({"a": [(0, 1.0)]}), figures.training_curves({"a": [(0, 1.0), (1, 2.0)]})
    monkeypatch.setenv("SPECDEC_EXPLORE", "live")
    screen = Screen(first)
    screen.put(later)
    assert list(screen.view.data[0].y) == [1.0, 2.0]
    monkeypatch.setenv("SPECDEC_EXPLORE", "html")
    still = Screen(first)
    still.put(later)
    assert still.view is None
