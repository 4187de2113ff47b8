"""explore: a figure function with choices as live controls, as a static figure, or as controls of an exported page.

The environment variable SPECDEC_EXPLORE selects the mode: `live` (the default), `static` (the figure at its first
values), `html` (drawn in advance; it needs no kernel, and figures need a page that brings Plotly along).
The function is pure: it takes the choices by name and returns a Figure, a value with HTML such as a token strip, or a
`show.stack` of both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from math import prod
from typing import Any, cast

import plotly.graph_objects as go

from specdec_lib.collection import without_collection
from specdec_lib.show.html import Html, Stack, as_html
from specdec_lib.show.page_controls import page_with_controls
from specdec_lib.types import Refusal

MODES = ("live", "static", "html")
STEPS = 12                                         # of a control in an exported page; more make it too large
GRID = 40                                          # combinations that an exported page holds; beyond, one moves alone


class Choices:
    """The values of a control, in order; `start` is the initial value, by default the first one, `unit` theirs.

    A number to start at, such as a reader's own value of a parameter, is put among the numbers if it is none of them.
    """

    def __init__(self, *values, start: Any = None, unit: str = ""):
        if not values:
            raise ValueError("a slider needs at least one value")
        if start is not None and start not in values and all(map(_is_number, (start, *values))):
            values = tuple(sorted((start, *values)))
        if start is not None and start not in values:
            raise ValueError(f"the slider starts at {start!r}, which is none of its values")
        self.values, self.start, self.unit = values, values[0] if start is None else start, unit

    @property
    def place(self) -> int:
        return self.values.index(self.start)

    @property
    def named(self) -> bool:
        """Whether the values are names, to be chosen from a list, and not numbers in an order."""
        return any(isinstance(value, str | bool) for value in self.values)

    def label(self, name: str) -> str:
        """What the control is called."""
        return f"{name} ({self.unit})" if self.unit else name

    @property
    def labels(self) -> list[str]:
        return [("no", "yes")[value] if isinstance(value, bool) else str(value) for value in self.values]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def explore(figure: Callable[..., Any], **choices):
    """`figure(name=value, ...)` with a control for each `Choices` of two values or more; other values are passed on.

    Refusal if SPECDEC_EXPLORE is none of its three values, ValueError if there is no `Choices`.
    """
    mode = os.environ.get("SPECDEC_EXPLORE", "live")
    if mode not in MODES:
        raise Refusal(f"SPECDEC_EXPLORE is one of {', '.join(MODES)}, got {mode!r}")
    given = {name: value for name, value in choices.items() if isinstance(value, Choices)}
    if not given:
        raise ValueError("explore needs at least one Choices(...)")
    first = {name: value.start if name in given else value for name, value in choices.items()}
    moved = {name: value for name, value in given.items() if len(value.values) > 1}
    if mode == "static" or not moved:
        return figure(**first)
    return _live(figure, first, moved) if mode == "live" else _exported(figure, first, moved)


def _live(figure, first: dict, moved: dict[str, Choices]):
    """Controls above the view of a figure or of HTML; moving one calls the function again."""
    import ipywidgets as widgets

    now = dict(first)
    view = view_of(figure(**now))
    box = widgets.VBox(layout={"width": "100%"})

    def move(name, change):
        now[name] = change.new
        new = refreshed(box.children[-2], figure(**now))
        if new is not box.children[-2]:
            box.children = (*box.children[:-2], new, box.children[-1])

    controls = [_control(name, steps) for name, steps in moved.items()]
    for name, control in zip(moved, controls, strict=True):
        control.observe(partial(move, name), names="value")
    box.children = (*controls, view, follower())
    return box


def _control(name: str, steps: Choices):
    """A slider for numbers, a list for names; the keyboard moves both, and the name with its unit is the label."""
    import ipywidgets as widgets

    options = list(zip(steps.labels, steps.values, strict=True))
    look: Any = {"description": steps.label(name), "options": options, "value": steps.start,
                 "style": {"description_width": "initial"}}
    if steps.named:
        return widgets.Dropdown(**look, layout={"width": "max-content"})
    return widgets.SelectionSlider(**look, layout={"width": "60%"})


def view_of(shown: Any):
    """The widget that displays this value, and that `refreshed` redraws."""
    import ipywidgets as widgets

    if isinstance(shown, Stack):
        return widgets.VBox([view_of(part) for part in shown.parts], layout={"width": "100%"})
    if isinstance(shown, go.Figure):
        view = go.FigureWidget(shown)
        view._config = {"responsive": True}        # the width of the cell, whenever the window changes
        return view
    return widgets.HTML(as_html(shown))


def refreshed(view, new: Any):
    """This view with the new value in it, or a new view where the value is of another kind."""
    if isinstance(new, Stack) and len(new.parts) == len(getattr(view, "children", ())):
        parts = tuple(refreshed(old, part) for old, part in zip(view.children, new.parts, strict=True))
        if any(part is not old for part, old in zip(parts, view.children, strict=True)):
            view.children = parts
    elif isinstance(new, go.Figure) and isinstance(view, go.FigureWidget):
        redraw(view, new)
    elif hasattr(view, "value") and not isinstance(new, Stack | go.Figure):
        view.value = as_html(new)
    else:
        return view_of(new)
    return view


@cache
def _follower():
    import anywidget

    class Follower(anywidget.AnyWidget):
        _esm = """
        function render({el}) {
          el.style.width = "100%";
          const resized = new ResizeObserver(() => window.dispatchEvent(new Event("resize")));
          resized.observe(el);
          return () => resized.disconnect();
        }
        export default {render};
        """
    return Follower


def follower():
    """An invisible widget that tells the figures beside it when the width of their cell has changed.

    A FigureWidget is drawn before it is attached to the page, 700 pixels wide, and hears of the window's size only.
    """
    return _follower()(layout={"width": "100%", "height": "0"})


class Screen:
    """A figure that `put` redraws while a cell is running.

    It is shown in `live` mode only: an exported page keeps the last figure only, which the next cell can draw.
    """

    def __init__(self, first: go.Figure):
        self.view = None
        if os.environ.get("SPECDEC_EXPLORE", "live") == "live":
            import ipywidgets as widgets
            from IPython.display import display

            self.view = cast(go.FigureWidget, view_of(first))
            display(widgets.VBox([self.view, follower()], layout={"width": "100%"}))

    def put(self, new: go.Figure) -> None:
        if self.view is not None:
            redraw(self.view, new)


def redraw(view: go.FigureWidget, new: go.Figure) -> None:
    """Replaces the figure of a view that is already displayed, which is empty at no moment."""
    shown, wanted = cast(tuple[Any, ...], view.data), cast(tuple[Any, ...], new.data)
    if [trace.type for trace in shown] != [trace.type for trace in wanted]:
        view.add_traces([trace.to_plotly_json() | {"visible": False} for trace in wanted])
        added = cast(tuple[Any, ...], view.data)[len(shown):]
        with view.batch_update():
            for old in shown:
                old.visible = False
            for one, trace in zip(added, wanted, strict=True):
                one.visible = True if trace.visible is None else trace.visible
            lay_out(view, new)
        view.data = added
        return
    with view.batch_update():
        for old, trace in zip(shown, wanted, strict=True):
            old.update(trace.to_plotly_json(), overwrite=True)
        lay_out(view, new)


def lay_out(view: go.FigureWidget, new: go.Figure) -> None:
    """Sets what differs in the layout. Inside a batch it travels with the traces: a new layout is drawn by itself."""
    shown, wanted = view.layout.to_plotly_json(), new.layout.to_plotly_json()
    for name in {**shown, **wanted}:
        if shown.get(name) != wanted.get(name):
            view.layout[name] = wanted.get(name)


def one_off(start: tuple[int, ...], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The start, and every combination in which one control alone is off its place there, in order."""
    moved = {(*start[:at], step, *start[at + 1:]) for at, size in enumerate(sizes) for step in range(size)}
    return sorted(moved | {start})


def _exported(figure, first: dict, moved: dict[str, Choices]) -> Html:
    """Every combination drawn in advance; of more than GRID those in which one control is off its start."""
    for name, steps in moved.items():
        if len(steps.values) > STEPS:
            raise ValueError(f"{name} has {len(steps.values)} values: an exported slider takes {STEPS} at most")
    start = tuple(steps.place for steps in moved.values())
    sizes = [len(steps.values) for steps in moved.values()]
    places = list(product(*map(range, sizes))) if prod(sizes) <= GRID else one_off(start, sizes)

    def drawn(place: tuple[int, ...]):
        chosen = {name: steps.values[i] for (name, steps), i in zip(moved.items(), place, strict=True)}
        return figure(**{**first, **chosen})

    with without_collection():
        pages = {place: drawn(place) for place in places}
    controls = [(steps.label(name), steps.labels, steps.named) for name, steps in moved.items()]
    return page_with_controls(controls, start, pages)
