"""Figures of a sweep: two parameters as a contour, all of them as lines, the Pareto front, and the sensitivities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, canvas, fill, known_cells, numbers, same_length, whiskers, wrapped

Interval = Sequence[float] | None
BAR = 16                                           # letters in a line of a colour bar's title
NONE = -.2                                         # where no value stands, below the axis from 0 to 1
CORNERS = ("top right", "bottom right", "top left", "bottom left")       # of a point, where its label can stand
BEST_SHARE = 4                                     # the best quarter of the settings is drawn apart


def parameter_contour(names: tuple[str, str], xs: Sequence[Any], ys: Sequence[Any],
                      values: Sequence[Sequence[float | None]], measure: str, title: str | None = None,
                      more_is_better: bool = True) -> go.Figure:
    """`values[i][j]` of a measure at ys[i] and xs[j] as a contour; circles are what was run, a diamond is the best."""
    known = known_cells(ys, xs, values)
    best, j, i = (max if more_is_better else min)(known, key=lambda cell: cell[0])
    said = f"{measure}: best {best:.2f}, at {names[0]} {xs[j]} and {names[1]} {ys[i]}"
    figure = canvas(title or said, names[0], names[1])
    x, y = [str(one) for one in xs], [str(one) for one in ys]
    figure.add_contour(x=x, y=y, z=[numbers(row) for row in values], colorscale="Cividis", connectgaps=False,
                       contours={"showlabels": True}, colorbar={"title": wrapped(measure, BAR)},
                       hovertemplate=f"{names[0]} %{{x}}, {names[1]} %{{y}}: %{{z:.3f}}<extra></extra>")
    ran = [place for place in known if place[1:] != (j, i)]
    for where, name, symbol, size in ((ran, "run", "circle-open", 9), ([(best, j, i)], "best", "diamond", 14)):
        figure.add_scatter(x=[x[b] for _, b, _ in where], y=[y[a] for _, _, a in where], mode="markers", name=name,
                           hoverinfo="skip", marker={"symbol": symbol, "size": size, "color": PALETTE["rejected"],
                                                     "line": {"width": 2}})
    return figure.update_xaxes(type="category").update_yaxes(type="category", showgrid=False)


def parallel_settings(columns: Mapping[str, Sequence[Any]], measure: str, values: Sequence[float],
                      title: str | None = None, more_is_better: bool = True) -> go.Figure:
    """A line for each setting through its parameters to its measure; the best one and the best quarter stand out.

    `columns` hold a value for each setting, None where it has no value there: it goes through `none`, below the values.
    """
    same_length(values=values, **columns)
    if not values:
        raise ValueError("a line needs one setting at least")
    axes = [*columns, measure]
    heights = {name: _heights(known) for name, known in {**columns, measure: values}.items()}
    order = sorted(range(len(values)), key=lambda place: values[place], reverse=more_is_better)
    top = order[:max(1, len(order) // BEST_SHARE)]
    said = ", ".join(f"{name} {columns[name][top[0]]}" for name in columns if columns[name][top[0]] is not None)
    figure = canvas(title or f"Best {measure}, {values[top[0]]:.2f}: {said or 'the only setting'}", "", "")
    for places, name, colour, dash, width in ((order[len(top):], "other settings", "quiet", "dot", 1),
                                              (top[1:], "best quarter", "extra", "dash", 2),
                                              (top[:1], "best", "accepted", "solid", 5)):
        if places:
            ys = [step for place in places for step in (*(heights[axis][1][place] for axis in axes), None)]
            figure.add_scatter(x=[step for _ in places for step in (*axes, None)], y=ys, mode="lines", name=name,
                               line={"color": PALETTE[colour], "dash": dash, "width": width},
                               hoverinfo="skip")
    marks = [(axis, height, text) for axis in axes for text, height in heights[axis][0].items()]
    figure.add_scatter(x=[mark[0] for mark in marks], y=[mark[1] for mark in marks], text=[mark[2] for mark in marks],
                       mode="markers+text", textposition="middle right", showlegend=False, hoverinfo="skip",
                       marker={"color": PALETTE["target"], "size": 6})
    figure.update_yaxes(visible=False, range=[min(mark[1] for mark in marks) - .08, 1.08])
    return figure.update_xaxes(title="parameter, and the measure at the right", range=[-.3, len(axes) - .4])


def _heights(values: Sequence[Any]) -> tuple[dict[str, float], list[float]]:
    """Labels of an axis with their height from 0 to 1, and each value's height; text is spread in order.

    None is no value, and stands below them all.
    """
    known = list(dict.fromkeys(value for value in values if value is not None))
    if known and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        low, high = min(known), max(known)
        place = {value: (value - low) / (high - low) if high > low else .5 for value in known}
        shown = known if len(known) <= 6 else [low, high]
    else:
        place = {value: index / max(1, len(known) - 1) for index, value in enumerate(known)}
        shown = known
    labels = {f"{value:.4g}" if isinstance(value, float) else str(value): float(place[value]) for value in shown}
    if None in values:
        labels["none"] = NONE
    return labels, [NONE if value is None else float(place[value]) for value in values]


def settings_front(points: Mapping[str, tuple[float, float]], front: Sequence[str], x: str, y: str,
                   spans: Mapping[str, tuple[Interval, Interval]] | None = None, title: str | None = None) -> go.Figure:
    """Every setting by two measures; a line joins the Pareto front, whose settings have intervals.

    The points of the front are numbered in the order of `front`, neighbours at other corners; hovering names them.
    """
    unknown = [name for name in front if name not in points]
    if unknown:
        raise ValueError(f"{unknown[0]} is on the front and is no point")
    figure = canvas(title or f"{len(front)} of {len(points)} settings are beaten by no other in both measures", x, y)
    rest = [name for name in points if name not in front]
    figure.add_scatter(x=numbers([points[name][0] for name in rest]), y=numbers([points[name][1] for name in rest]),
                       mode="markers", name="beaten in both", hovertext=rest,
                       marker={"symbol": "circle-open", "size": 9, "color": PALETTE["target"]})
    known = spans or {}
    across, up = ([known.get(name, (None, None))[place] for name in front] for place in (0, 1))
    xs, ys = ([points[name][place] for name in front] for place in (0, 1))
    figure.add_scatter(x=numbers(xs), y=numbers(ys), mode="lines+markers+text", name="Pareto front",
                       text=[str(n) for n in range(1, len(front) + 1)], hovertext=list(front),
                       textposition=_corners([points[name] for name in front], list(points.values())),
                       error_x=whiskers(xs, across, PALETTE["extra"], thickness=1),
                       error_y=whiskers(ys, up, PALETTE["extra"], thickness=1),
                       line={"color": PALETTE["extra"], "width": 2},
                       marker={"symbol": "diamond", "size": 11, "color": PALETTE["extra"]})
    return figure.update_layout(height=460)


def _corners(labelled: Sequence[tuple[float, float]], points: Sequence[tuple[float, float]]) -> list[str]:
    """At which corner of each point its label stands: not at that of a point close to it, so that labels stay apart."""
    wide, high = (max(side) - min(side) or 1.0 for side in zip(*points, strict=True)) if points else (1.0, 1.0)
    found: list[str] = []
    for x, y in labelled:
        taken = [corner for (a, b), corner in zip(labelled, found, strict=False)
                 if abs(x - a) < .03 * wide and abs(y - b) < .1 * high]
        found.append(next((corner for corner in CORNERS if corner not in taken), CORNERS[0]))
    return found


def sensitivity_bars(names: Sequence[str], effects: Sequence[float | None], intervals: Sequence[Interval], measure: str,
                     title: str | None = None, clock: float = 1.0) -> go.Figure:
    """By how much each parameter's best value beats its worst; effects and intervals are ratios, 1 is no effect.

    An effect of None has no bar. A second line marks `clock`, the factor that equal work differs by, if it is above 1:
    only an effect beyond it is counted in the title.
    """
    same_length(names=names, effects=effects, intervals=intervals)
    sure = sum(bool(span and span[0] > 1 and effect and effect > clock)
               for effect, span in zip(effects, intervals, strict=True))
    said = f"{sure} of {len(names)} parameters surely matter for {measure}" if names else "No parameter has two values"
    figure = canvas(title or said, "percent by which the best value beats the worst (95 % interval)", "")
    gains = [None if effect is None else 100 * (effect - 1) for effect in effects]
    spans = [None if span is None else [100 * (end - 1) for end in span] for span in intervals]
    figure.add_bar(y=list(names), x=numbers(gains), orientation="h", marker=fill("extra"), showlegend=False,
                   hovertemplate="%{y}: %{x:.1f} %<extra></extra>", error_x=whiskers(gains, spans, PALETTE["target"]))
    figure.add_vline(x=0, line={"color": PALETTE["target"], "dash": "dot", "width": 1.5})
    if clock > 1:
        figure.add_vline(x=100 * (clock - 1), line={"color": PALETTE["rejected"], "dash": "dash", "width": 1.5},
                         annotation={"text": "equal work", "font": {"color": PALETTE["rejected"]}})
    return figure.update_layout(height=180 + 40 * len(names), yaxis={"autorange": "reversed"})
