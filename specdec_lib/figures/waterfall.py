"""Openings: the steps from plain decoding to the last method, and the cost of a draft against tokens per round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10

import plotly.graph_objects as go

from specdec_lib.figures.theme import (
    DETAIL,
    INK,
    PALETTE,
    PATTERN,
    canvas,
    hatched,
    numbers,
    same_length,
    series,
    with_legend,
)

Interval = Sequence[float] | None
Point = tuple[float, float]
KINDS = {"gains": "accepted", "loses": "rejected", "is not told apart": "target"}   # roles: colours and patterns


def waterfall(names: Sequence[str], factors: Sequence[float], intervals: Sequence[Interval], first: str = "ar",
              title: str | None = None) -> go.Figure:
    """Speed over plain decoding, built up step by step: each bar spans from the speed before a step to that after it.

    `factors` are the ratios of a step to the step before, `intervals` theirs. The scale is logarithmic, so that equal
    factors have equal heights. A step gains or loses if its whole interval does; each kind has a colour and a pattern.
    """
    same_length(names=names, factors=factors, intervals=intervals)
    speeds = [1.0]
    for factor in factors:
        speeds.append(speeds[-1] * factor)
    kinds = [_kind(factor, interval) for factor, interval in zip(factors, intervals, strict=True)]
    lost = [name for name, kind in zip(names, kinds, strict=True) if kind == "loses"]
    said = f"From {first} to {names[-1]}: {speeds[-1]:.2f} times plain decoding" if names else "No step was measured"
    figure = canvas(title or said + (f"; {', '.join(lost)} loses" if len(lost) == 1 else
                                     f"; {', '.join(lost)} lose" if lost else ""), "", "times plain decoding")
    order = [first, *names]
    for kind, role in KINDS.items():
        rows = [n for n, own in enumerate(kinds) if own == kind]
        if not rows:
            continue
        figure.add_bar(x=[names[n] for n in rows], base=[min(speeds[n], speeds[n + 1]) for n in rows],
                       y=[abs(speeds[n + 1] - speeds[n]) for n in rows], name=f"the step {kind}", width=.6,
                       marker=hatched(PALETTE[role], PATTERN[role]),
                       hovertext=[_hint(factors[n], intervals[n]) for n in rows], hoverinfo="x+text")
    figure.add_scatter(x=order, y=numbers(speeds), mode="lines", name="speed after the step", showlegend=False,
                       line={"color": PALETTE["target"], "width": 1, "dash": "dot", "shape": "hvh"}, hoverinfo="skip")
    for n, name in enumerate(names):
        figure.add_annotation(x=name, y=log10(max(speeds[n], speeds[n + 1])), yshift=22, showarrow=False,
                              text=_hint(factors[n], intervals[n]).replace(" (", "<br>("), name=DETAIL,
                              font={"size": 11, "color": INK})
    figure.update_yaxes(type="log", range=[log10(min(speeds)) - .03, log10(max(speeds)) + .12],
                        tickvals=[.5, .75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5])
    figure.update_xaxes(categoryorder="array", categoryarray=order, range=[-.5, len(names) + .5])
    return figure.add_hline(y=1, line={"color": PALETTE["target"], "dash": "dot", "width": 1.5}).update_layout(
        showlegend=True, height=440)


def break_even_plane(points: Mapping[str, Point], verify: float, published: Mapping[str, Point],
                     costs: Point, tokens: Point, title: str | None = None) -> go.Figure:
    """Tokens of a round against the cost of its draft in plain steps, with the curve where drafting breaks even.

    `points` are measured here and `published` printed in a paper, each (cost of a draft, tokens of a round); a round
    costs `verify` plain steps besides its draft. `costs` and `tokens` are the ranges of the axes, both logarithmic; a
    draft that costs less than the first of `costs` is drawn at it.
    """
    low, high = costs
    pays = sum(count > verify + cost for cost, count in points.values())
    said = f"At {verify:.2f} plain steps of verification {pays} of {len(points)} methods break even"
    figure = canvas(title or said, "cost of a draft (plain steps of the target)", "tokens of a round")
    steps = [low * (high / low) ** (n / 40) for n in range(41)]
    figure.add_scatter(x=steps, y=[verify + cost for cost in steps], mode="lines", name="break-even",
                       line={"color": PALETTE["target"], "dash": "dash", "width": 2})
    for place, (name, (cost, count)) in enumerate(points.items()):
        look = series(place)
        figure.add_scatter(x=[max(low, float(cost))], y=[float(count)], mode="markers", name=name, cliponaxis=False,
                           marker={"symbol": look["symbol"], "color": look["colour"], "size": 12})
    figure.add_scatter(x=[float(cost) for cost, _ in published.values()], mode="markers+text", text=list(published),
                       y=[float(count) for _, count in published.values()], textposition="middle left",
                       name="published", marker={"symbol": "star-open", "color": PALETTE["target"], "size": 14})
    figure.update_xaxes(type="log", range=[log10(low), log10(high)], tickvals=[.01, .02, .05, .1, .2, .5, 1, 2, 5])
    figure.update_yaxes(type="log", range=[log10(end) for end in tokens], tickvals=[1, 1.5, 2, 3, 4, 5, 6, 8, 10])
    return with_legend(figure.update_layout(height=460))


def _kind(factor: float, interval: Interval) -> str:
    """What a step does by its interval, or where it has none by its factor."""
    low, high = interval or (factor, factor)
    return "loses" if high < 1 else "gains" if low > 1 else "is not told apart"


def _hint(factor: float, interval: Interval) -> str:
    """Three digits where an interval that does not hold 1 would be shown as if it ended there."""
    if not interval:
        return f"× {factor:.2f} (no interval)"
    low, high = interval
    digits = 3 if (high < 1 and f"{high:.2f}" == "1.00") or (low > 1 and f"{low:.2f}" == "1.00") else 2
    return f"× {factor:.2f} ({low:.{digits}f} to {high:.{digits}f})"
