"""explore: the same figure function, moved live, shown still, or stepped inside an exported page."""

import json
import re

import ipywidgets as widgets
import plotly.graph_objects as go
import pytest

from specdec_lib import figures, show
from specdec_lib.explore import Choices, Screen, explore, one_off, redraw
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
    slider, view, _ = box.children
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


def held(page: show.Html) -> dict:
    """What the script of an exported page finds in it."""
    [data] = re.findall(r'<script type="application/json">(.*?)</script>', page.html, re.S)
    return json.loads(data)


def part(page: show.Html, *place: int):
    """The first display at this combination of the controls."""
    found = held(page)
    return found["pages"][found["at"][",".join(map(str, place))]][0]


def test_html_holds_every_combination_so_that_every_control_works(mode):
    mode("html")
    page = explore(bars, k=Choices(1, 2, 4, start=2), alpha=Choices(0.5, 0.9))
    assert part(page, 2, 1)["layout"]["title"]["text"] == "k is 4 and alpha is 0.9"
    assert held(page)["start"] == [1, 0]
    assert held(page)["labels"] == {"k": ["1", "2", "4"], "alpha": ["0.5", "0.9"]}
    assert "moving one puts the others back" not in page.html


def test_html_of_many_combinations_holds_those_with_one_control_off_its_start_and_says_so(mode):
    mode("html")
    calls = []
    page = explore(lambda **at: show.text(str(calls.append(at))), **{name: Choices(*range(5)) for name in "abc"})
    assert len(calls) == len(held(page)["at"]) == 1 + 3 * 4
    assert "moving one puts the others back" in page.html


def test_html_stores_a_page_and_a_template_once(mode):
    mode("html")
    found = held(explore(lambda k, shown: bars(k), k=Choices(1, 2), shown=Choices("yes", "no")))
    assert len(found["at"]) == 4
    assert len(found["pages"]) == 2
    assert len(found["templates"]) == 1


def test_html_clears_lines_that_the_next_step_does_not_have(mode):
    mode("html")
    page = explore(lambda bar: figures.match_lengths([1, 2], shortest=bar), bar=Choices(2, None))
    assert len(part(page, 0)["layout"]["shapes"]) == 1
    assert "shapes" not in part(page, 1)["layout"]


def test_the_labels_of_a_control_may_hold_quotes_and_tags(mode):
    mode("html")
    page = explore(lambda k: show.text(k), k=Choices('sam(mode="first")', "</script>"))
    assert held(page)["labels"] == {"k": ['sam(mode="first")', "</script>"]}
    assert "&lt;/script&gt;</option>" in page.html


def test_names_are_chosen_from_a_list_and_numbers_with_a_slider(mode):
    mode("html")
    page = explore(lambda k, who: show.text(f"{k}{who}"), k=Choices(1, 2), who=Choices("a", "b")).html
    assert re.search(r'<input [^>]*name="k" type="range" min="0" max="1"', page)
    assert '<select data-control name="who">' in page
    mode("live")
    kinds = [type(one).__name__ for one in explore(bars, k=Choices(1, 2), alpha=Choices("a", "b")).children]
    assert kinds[:2] == ["SelectionSlider", "Dropdown"]


def test_a_control_shows_the_unit_of_its_values_and_moves_its_own_argument(mode):
    mode("live")
    box = explore(bars, k=Choices(1, 2, unit="GB/s"), alpha=Choices(0.5, 0.9))
    assert [control.description for control in box.children[:2]] == ["k (GB/s)", "alpha"]
    box.children[0].value = 2
    assert box.children[2].layout.title.text == "k is 2 and alpha is 0.5"
    mode("html")
    assert "<label>k (GB/s) = <output>1</output>" in explore(line, k=Choices(1, 2, unit="GB/s")).html


def test_a_truth_value_is_chosen_as_yes_or_no(mode):
    mode("live")
    control = explore(line, k=Choices(True, False)).children[0]
    assert isinstance(control, widgets.Dropdown)
    assert control.options == (("yes", True), ("no", False))
    mode("html")
    assert re.findall(r"<option[^>]*>(\w+)", explore(line, k=Choices(True, False)).html) == ["yes", "no"]


def test_a_stack_of_a_figure_and_text_moves_as_a_whole(mode):
    both = lambda k: show.stack(line(k), bars(k))  # noqa: E731
    mode("live")
    box = explore(both, k=Choices(1, 2))
    view = box.children[1]
    said, drawn = view.children
    box.children[0].value = 2
    assert box.children[1] is view
    assert "k is 2" in said.value
    assert list(drawn.data[0].y) == [2, 1]
    mode("html")
    page = explore(both, k=Choices(1, 2))
    assert [type(one) for one in held(page)["pages"][1]] == [str, dict]


def test_a_value_of_another_kind_replaces_the_view(mode):
    mode("live")
    box = explore(lambda k: line(k) if k < 2 else bars(k), k=Choices(1, 2))
    box.children[0].value = 2
    assert isinstance(box.children[1], go.FigureWidget)


def test_a_view_that_changes_its_traces_is_empty_at_no_moment(mode, monkeypatch):
    mode("live")
    box = explore(lambda k: figures.curves([1], {str(i): [i] for i in range(k)}, "x", "y", "lines"), k=Choices(1, 3))
    told = []
    for kind in ("addTraces", "update", "deleteTraces"):
        monkeypatch.setattr(box.children[1], f"_send_{kind}_msg", lambda *words, kind=kind, **more: told.append(kind))
    box.children[0].value = 3
    assert told == ["addTraces", "update", "deleteTraces"]     # the new ones are hidden until the update


def test_a_move_draws_once_and_takes_away_what_the_new_layout_lacks(mode, monkeypatch):
    def lines(k):
        made = go.Figure(go.Scatter(y=[k, 1]), {"title": {"text": f"k = {k}"}})
        return made.add_hline(y=1) if k == 1 else made

    mode("live")
    view, sent = explore(lines, k=Choices(1, 2)).children[1], []
    assert len(view.layout.shapes) == 1
    for kind in ("relayout", "update"):
        monkeypatch.setattr(view, f"_send_{kind}_msg", lambda *words, kind=kind, **more: sent.append(kind))
    redraw(view, lines(2))
    assert sent == ["update"]                      # a layout that is set by itself is drawn by itself
    assert (view.layout.title.text, view.layout.shapes, list(view.data[0].y)) == ("k = 2", (), [2, 1])


def test_a_figure_under_a_slider_follows_the_width_of_its_cell(mode):
    mode("live")
    box = explore(bars, k=Choices(1, 2))
    assert box.layout.width == "100%"
    assert box.children[1]._config == {"responsive": True}
    assert "ResizeObserver" in str(box.children[2]._esm)


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
    with pytest.raises(ValueError, match="starts at 'c'"):
        Choices("a", "b", start="c")


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


@pytest.mark.parametrize("mode", ["live", "html"])
def test_a_choice_of_one_value_has_no_control(mode, monkeypatch):
    monkeypatch.setenv("SPECDEC_EXPLORE", mode)

    def told(a, b):
        return show.text(f"{a} {b}")

    both = explore(told, a=Choices(1, 2), b=Choices("only"))
    controls = [one.description for one in both.children if hasattr(one, "description")] if mode == "live" else [
        name for name in ("a", "b") if f'name="{name}"' in both.html]
    assert [name for name in controls if name] == ["a"]
    assert explore(told, b=Choices("only"), a=3).plain == "3 only"


def test_a_number_to_start_at_is_put_among_the_numbers(mode):
    mode("static")
    found = Choices(1, 2, 8, start=3)
    assert (found.values, found.place) == ((1, 2, 3, 8), 2)
    assert Choices(1, 2, start=2).values == (1, 2)
    assert explore(bars, k=found).layout.title.text == "k is 3 and alpha is 0.5"
    with pytest.raises(ValueError, match="starts at 3"):
        Choices("a", "b", start=3)


def test_of_too_many_combinations_those_with_one_control_off_its_start_are_drawn():
    start, sizes = (1, 0, 2), (3, 1, 4)
    every = [(a, b, c) for a in range(3) for b in range(1) for c in range(4)]
    near = [one for one in every if sum(x != y for x, y in zip(one, start, strict=True)) < 2]
    assert one_off(start, sizes) == near
