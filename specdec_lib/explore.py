"""explore: a figure function with choices as live sliders, as a static figure, or as a slider inside exported HTML.

The environment variable SPECDEC_EXPLORE selects the mode: `live` (the default), `static` (the figure at its first
values), `html` (every step of the first choice drawn in advance; it needs no kernel).
The function is pure: it takes the choices by name and returns a Figure, or a value with HTML such as a token strip.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from html import escape
from typing import Any, cast

import plotly.graph_objects as go

from specdec_lib.types import Refusal

MODES = ("live", "static", "html")
STEPS = 12                                         # more make the exported page too large


class Choices:
    """The values of a slider, in order; `start` is the initial value, by default the first one."""

    def __init__(self, *values, start: Any = None):
        if not values:
            raise ValueError("a slider needs at least one value")
        if start is not None and start not in values:
            raise ValueError(f"the slider starts at {start!r}, which is none of its values")
        self.values, self.start = values, values[0] if start is None else start

    @property
    def place(self) -> int:
        return self.values.index(self.start)


def explore(figure: Callable[..., Any], **choices):
    """`figure(name=value, ...)` with a slider for each `Choices`; any other value is passed on unchanged.

    Refusal if SPECDEC_EXPLORE is none of its three values, ValueError if there is no `Choices`.
    """
    mode = os.environ.get("SPECDEC_EXPLORE", "live")
    if mode not in MODES:
        raise Refusal(f"SPECDEC_EXPLORE is one of {', '.join(MODES)}, got {mode!r}")
    sliders = {name: value for name, value in choices.items() if isinstance(value, Choices)}
    if not sliders:
        raise ValueError("explore needs at least one Choices(...)")
    first = {name: value.start if name in sliders else value for name, value in choices.items()}
    if mode == "static":
        return figure(**first)
    if mode == "live":
        return _live(figure, first, sliders)
    name = next(iter(sliders))
    steps = sliders[name]
    if len(steps.values) > STEPS:
        raise ValueError(f"{name} has {len(steps.values)} values: an exported slider takes {STEPS} at most")
    drawn = [figure(**{**first, name: value}) for value in steps.values]
    fixed = ", ".join(f"{other} = {first[other]}" for other in sliders if other != name)
    return _pages(drawn, name, steps, fixed) if hasattr(drawn[0], "_repr_html_") and not isinstance(
        drawn[0], go.Figure) else _stepped(drawn, name, steps, fixed)


def _live(figure, first: dict, sliders: dict[str, Choices]):
    """Sliders above a FigureWidget or an HTML widget; moving one calls the function again."""
    import ipywidgets as widgets

    now = dict(first)
    shown = figure(**now)
    flat = isinstance(shown, go.Figure)
    view = go.FigureWidget(shown) if flat else widgets.HTML(shown._repr_html_())

    def moved(change):
        now[change.owner.description] = change.new
        new = figure(**now)
        if isinstance(view, go.FigureWidget):
            redraw(view, new)
        else:
            view.value = new._repr_html_()

    controls = []
    for name, steps in sliders.items():
        slider = widgets.SelectionSlider(options=[(str(value), value) for value in steps.values], value=steps.start,
                                         description=name, layout={"width": "60%"})
        slider.observe(moved, names="value")
        controls.append(slider)
    return widgets.VBox([*controls, view])


class Screen:
    """A figure that `put` redraws while a cell is running.

    It is shown in `live` mode only: an exported page keeps the last figure only, which the next cell can draw.
    """

    def __init__(self, first: go.Figure):
        self.view = None
        if os.environ.get("SPECDEC_EXPLORE", "live") == "live":
            from IPython.display import display

            self.view = go.FigureWidget(first)
            display(self.view)

    def put(self, new: go.Figure) -> None:
        if self.view is not None:
            redraw(self.view, new)


def redraw(view: go.FigureWidget, new: go.Figure) -> None:
    """Replaces the figure of a view that is already displayed."""
    shown, wanted = cast(tuple[Any, ...], view.data), cast(tuple[Any, ...], new.data)
    with view.batch_update():
        if [trace.type for trace in shown] == [trace.type for trace in wanted]:
            for old, trace in zip(shown, wanted, strict=True):
                old.update(trace.to_plotly_json(), overwrite=True)
        else:
            view.data = ()
            view.add_traces(new.data)
        view.layout = new.layout


def _stepped(drawn: list[go.Figure], name: str, steps: Choices, fixed: str) -> go.Figure:
    """All steps in one figure, one of them visible, with Plotly's slider below."""
    whole = go.Figure(layout=drawn[steps.place].layout)
    owner = []
    for place, one in enumerate(drawn):
        for trace in one.data:
            whole.add_trace(trace)
            whole.data[-1].visible = place == steps.place
            owner.append(place)
    moves = []
    for place, (value, one) in enumerate(zip(steps.values, drawn, strict=True)):
        layout = one.layout.to_plotly_json()
        told = {key: layout.get(key, []) for key in ("shapes", "annotations")}
        told |= {key: layout[key] for key in ("title", "xaxis", "yaxis")
                 if key in layout} | {"height": height_with_slider(one)}
        moves.append({"label": str(value), "method": "update",
                      "args": [{"visible": [each == place for each in owner]}, told]})
    prefix = f"{name} = " if not fixed else f"{fixed}; {name} = "
    whole.update_layout(height=height_with_slider(drawn[steps.place]), margin={"b": 140}, sliders=[
        {"active": steps.place, "steps": moves, "currentvalue": {"prefix": prefix}, "pad": {"t": 50}}])
    return whole


def height_with_slider(one: go.Figure) -> float:
    """Height in pixels of the figure and the slider below it."""
    return (one.layout.height or one.layout.template.layout.height or 450) + 90


def _pages(drawn: list, name: str, steps: Choices, fixed: str):
    """HTML pages below a range input that selects the visible one; works in any page that runs scripts."""
    from specdec_lib.show.html import Html

    turn = ("const b=this.parentNode,v=JSON.parse(b.dataset.v);"
            "b.querySelectorAll(':scope>.page').forEach((e,i)=>{e.hidden=i!=this.value});"
            "b.querySelector('b').textContent=v[this.value]")
    labels = json.dumps([str(value) for value in steps.values])
    note = f"{escape(fixed)}; " if fixed else ""
    pages = "".join(f'<div class="page"{"" if place == steps.place else " hidden"}>{one._repr_html_()}</div>'
                    for place, one in enumerate(drawn))
    html = (f'<div data-v="{escape(labels)}"><label>{note}{escape(name)} = <b>{escape(str(steps.start))}</b></label> '
            f'<input type="range" min="0" max="{len(drawn) - 1}" value="{steps.place}" oninput="{turn}">{pages}</div>')
    return Html(html, repr(drawn[steps.place]))
