"""Speed against quality: one point a rule, whiskers on both sides, the settings of one rule joined to a curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from specdec_lib.figures.look import PALETTE, canvas

Interval = Sequence[float] | None


class Outcome(NamedTuple):
    """What one rule did: its speed-up and one measure of quality, each with its interval or None."""

    speed: float
    speed_span: Interval
    quality: float
    quality_span: Interval


def tradeoff(outcomes: Mapping[str, Outcome], quality: str, chosen: str, curve: Sequence[str] = (),
             title: str | None = None) -> go.Figure:
    """Speed-up over plain decoding by quality; `chosen` is filled and named, those of `curve` are joined in order."""
    one = outcomes[chosen]
    figure = canvas(title or f"{chosen}: {one.speed:.2f} times as fast as plain decoding, {quality} {one.quality:.3f}",
                    f"{quality} (95 % interval)", "speed-up (95 % interval)")
    joined = [outcomes[name] for name in curve]
    if joined:
        figure.add_scatter(x=[float(each.quality) for each in joined], y=[float(each.speed) for each in joined],
                           mode="lines", line={"color": PALETTE["quiet"], "width": 2}, showlegend=False,
                           hoverinfo="skip")
    for name, each in outcomes.items():
        mine = name == chosen
        figure.add_scatter(
            x=[float(each.quality)], y=[float(each.speed)], mode="markers+text" if mine else "markers", name=name,
            text=[name] if mine else None, textposition="top center", showlegend=False,
            error_x=whiskers(each.quality, each.quality_span) if mine else None,
            error_y=whiskers(each.speed, each.speed_span) if mine else None,
            marker={"symbol": "circle" if mine else "circle-open", "size": 12,
                    "color": PALETTE["extra" if mine else "target"]})
    return figure


def whiskers(value: float, span: Interval) -> dict | None:
    """The two arms of an error bar; None without an interval."""
    if span is None:
        return None
    return {"type": "data", "symmetric": False, "array": [float(span[1] - value)],
            "arrayminus": [float(value - span[0])], "color": PALETTE["target"]}
