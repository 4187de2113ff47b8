"""Which schedule wins, by acceptance and speed ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10

import plotly.graph_objects as go

from specdec_lib.figures.theme import INK, PALETTE, SERIES, canvas, numbers, same_length, series

PALE = 0.55                                        # how much of a region's colour is white, for letters upon it


def schedule_map(alphas: Sequence[float], ratios: Sequence[float], winners: Sequence[Sequence[str]],
                 points: Mapping[str, tuple[float, float]] | None = None,
                 levels: Mapping[str, float] | None = None, title: str | None = None) -> go.Figure:
    """The fastest schedule at each acceptance (across) and speed ratio (up): `winners[i][j]` at ratios[i], alphas[j].

    `points` are (acceptance, ratio), `levels` ratios whose acceptance is not known. A region carries its name as well
    as its colour; the ratios' axis is logarithmic.
    """
    same_length(ratios=ratios, winners=winners)
    names = list(dict.fromkeys(name for row in winners for name in row))
    counts = {name: sum(row.count(name) for row in winners) for name in names}
    first = max(counts, key=counts.__getitem__)
    figure = canvas(title or f"{first} wins in {counts[first] / sum(counts.values()):.0%} of this map",
                    "alpha (probability that a drafted token is accepted)",
                    "speed ratio (draft steps in one forward of the target)")
    shades = [pale(SERIES[place % len(SERIES)][0]) for place in range(len(names))]
    figure.add_heatmap(x=numbers(alphas), y=numbers(ratios), text=[list(row) for row in winners],
                       z=[[names.index(name) for name in row] for row in winners],
                       hovertemplate="alpha %{x}, ratio %{y}: %{text}<extra></extra>",
                       colorscale=steps(shades), zmin=-.5, zmax=len(names) - .5, showscale=False)
    for name in names:
        where = [(alpha, ratio) for row, ratio in zip(winners, ratios, strict=True)
                 for one, alpha in zip(row, alphas, strict=True) if one == name]
        alpha, ratio = middle(where)
        figure.add_annotation(x=alpha, y=log10(ratio), text=name, showarrow=False, font={"size": 13, "color": INK})
    for name, ratio in (levels or {}).items():
        figure.add_hline(y=ratio, line={"color": PALETTE["target"], "dash": "dot", "width": 1.5})
        figure.add_annotation(x=0, xref="paper", xanchor="left", y=log10(ratio), yanchor="bottom", text=name,
                              showarrow=False, font={"size": 11, "color": INK})      # its y is an exponent of ten
    for place, (name, (alpha, ratio)) in enumerate((points or {}).items()):
        figure.add_scatter(x=[float(alpha)], y=[float(ratio)], mode="markers", name=name,
                           marker={"symbol": series(place)["symbol"], "size": 13, "color": INK,
                                   "line": {"color": "white", "width": 2}})
    figure.update_yaxes(type="log", tickvals=[1, 2, 3, 5, 7, 10, 16, 24, 40], showgrid=False)
    return figure.update_xaxes(tickformat=".2~f").update_layout(height=460, showlegend=bool(points))


def middle(where: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The point of a region that is nearest to its mean, so that it lies inside."""
    alpha, height = (sum(values) / len(where) for values in ([a for a, _ in where], [log10(r) for _, r in where]))
    return min(where, key=lambda one: (one[0] - alpha) ** 2 + (log10(one[1]) - height) ** 2)


def pale(colour: str) -> str:
    """The colour mixed with white, as letters need behind them."""
    parts = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * PALE):02x}" for part in parts)


def steps(colours: Sequence[str]) -> list[list]:
    """A colour scale of equal flat steps."""
    n = len(colours)
    return [[end / n, colour] for place, colour in enumerate(colours) for end in (place, place + 1)]
