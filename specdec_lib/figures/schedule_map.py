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
    as its colour, beside the points where it can; the ratios' axis is logarithmic.
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
    marked = {nearest(alphas, ratios, *point) for point in (points or {}).values()}
    for name, shade in zip(names, shades, strict=True):
        free = [[one == name and (i, j) not in marked for j, one in enumerate(row)] for i, row in enumerate(winners)]
        row, column = roomiest(free if any(map(any, free)) else [[one == name for one in row] for row in winners])
        figure.add_annotation(x=float(alphas[column]), y=log10(ratios[row]), text=name, showarrow=False,
                              bgcolor=shade, font={"size": 13, "color": INK})          # no level strikes it through
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


def nearest(alphas: Sequence[float], ratios: Sequence[float], alpha: float, ratio: float) -> tuple[int, int]:
    """Row and column of the cell that a point lies in."""
    return (min(range(len(ratios)), key=lambda i: abs(log10(ratios[i] / ratio))),
            min(range(len(alphas)), key=lambda j: abs(alphas[j] - alpha)))


def roomiest(inside: Sequence[Sequence[bool]]) -> tuple[int, int]:
    """Row and column of the cell of a region with the most cells of it on every side, above and below counted twice.

    Among equals the one that is nearest to the region's mean. A name that is written there lies inside, if one can.
    """
    where = [(i, j) for i, row in enumerate(inside) for j, one in enumerate(row) if one]
    mean = [sum(values) / len(where) for values in zip(*where, strict=True)]

    def room(i: int, j: int) -> int:
        ways = [inside[i][j + 1:], inside[i][:j][::-1], [row[j] for row in inside[i + 1:]],
                [row[j] for row in inside[:i]][::-1]]
        right, left, up, down = (list(way).index(False) if False in way else len(way) for way in ways)
        return min(right, left, 2 * up + 1, 2 * down + 1)

    return max(where, key=lambda at: (room(*at), -(at[0] - mean[0]) ** 2 - (at[1] - mean[1]) ** 2))


def pale(colour: str) -> str:
    """The colour mixed with white, as letters need behind them."""
    parts = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * PALE):02x}" for part in parts)


def steps(colours: Sequence[str]) -> list[list]:
    """A colour scale of equal flat steps."""
    n = len(colours)
    return [[end / n, colour] for place, colour in enumerate(colours) for end in (place, place + 1)]
