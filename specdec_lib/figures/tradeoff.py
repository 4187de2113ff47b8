"""Speed against quality: a point for each method with both intervals; a curve joins the settings of one rule."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, TEMPLATE, canvas, numbers, series, whiskers

Interval = Sequence[float] | None
ROOM = 80                                          # extra pixels of height, for the whiskers of many points
STRICT = "hourglass"                               # the symbol of lossless methods, which no series has


class TradeoffPoint(NamedTuple):
    """Speed-up and one measure of quality of a method, each with its interval or None."""

    speed: float
    speed_span: Interval
    quality: float | None
    quality_span: Interval


def tradeoff(outcomes: Mapping[str, TradeoffPoint], quality: str, curves: Mapping[str, Sequence[str]], chosen: str = "",
             lossless: Collection[str] = (), base: str = "plain decoding", level: float | None = None,
             title: str | None = None) -> go.Figure:
    """One measure of quality by speed-up over `base`; each curve joins the settings of one rule in the order given.

    Only `chosen` is labelled and has whiskers; without it all points have whiskers. Lossless methods have a symbol of
    their own, methods on no curve are rings. `level` marks the quality of plain decoding.
    """
    measured = outcomes[chosen].quality if chosen else None
    said = (f"{chosen}: {outcomes[chosen].speed:.2f} times as fast as {base}, {quality} "
            + ("not measured" if measured is None else f"{measured:.3f}")
            if chosen else f"Speed against {quality} for {len(curves)} rules")
    figure = canvas(title or said, f"times as fast as {base} (95 % interval)", f"{quality} (95 % interval)")
    if level is not None:
        figure.add_hline(y=level, line={"color": PALETTE["quiet"], "dash": "dot", "width": 1.5})
    for place, (rule, names) in enumerate(curves.items()):
        if not names:                              # an empty curve keeps the colours of those behind it
            continue
        look = series(place)
        figure.add_scatter(**curve_points(outcomes, names, chosen, lossless, look), name=rule,
                           line={"color": look["colour"], "dash": look["dash"], "width": 2})
    placed = {name for names in curves.values() for name in names}
    rest = [name for name in outcomes if name not in placed]
    if rest:
        ring = {"colour": PALETTE["target"], "symbol": "circle-open"}
        figure.add_scatter(**curve_points(outcomes, rest, chosen, lossless, ring) | {"mode": "markers+text"},
                           name="other methods")
    if chosen:                                     # the axes stay where they are, whichever point is chosen
        figure.update_xaxes(range=_extent([(one.speed, one.speed_span) for one in outcomes.values()]))
        figure.update_yaxes(range=_extent([(one.quality, one.quality_span) for one in outcomes.values()]))
    height = (figure.layout.height or cast(Any, TEMPLATE.layout).height) + ROOM
    return figure.update_layout(showlegend=bool(placed), height=height)


def curve_points(outcomes: Mapping[str, TradeoffPoint], names: Sequence[str], chosen: str, lossless: Collection[str],
                 look: Mapping[str, str]) -> dict:
    """The points of one curve, as arguments of a scatter trace."""
    names = [name for name in names if outcomes[name].quality is not None]         # a prompt may have no reference
    points = [outcomes[name] for name in names]
    shown = [not chosen or name == chosen for name in names]               # which points have whiskers
    speed_spans = [point.speed_span if yes else None for point, yes in zip(points, shown, strict=True)]
    quality_spans = [point.quality_span if yes else None for point, yes in zip(points, shown, strict=True)]
    speeds, qualities = [point.speed for point in points], [point.quality for point in points]
    return {"x": numbers(speeds), "y": numbers(qualities),
            "mode": "lines+markers+text", "text": [name if name == chosen else "" for name in names],
            "textposition": "top center", "hovertext": list(names),
            "error_x": whiskers(speeds, speed_spans, look["colour"], thickness=1),
            "error_y": whiskers(qualities, quality_spans, look["colour"], thickness=1),
            "marker": {"color": look["colour"], "size": [15 if name == chosen else 10 for name in names],
                       "symbol": [STRICT if name in lossless else look["symbol"] for name in names]}}


def _extent(values: Sequence[tuple[float | None, Interval]]) -> list[float] | None:
    """A range that holds all values and their intervals, with a little room; None without values."""
    ends = [end for value, span in values if value is not None for end in (value, *(span or ()))]
    room = 0.06 * (max(ends) - min(ends)) if ends else 0.0
    return [min(ends) - room, max(ends) + room] if ends else None
