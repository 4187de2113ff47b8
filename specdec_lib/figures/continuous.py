"""Densities of target and draft in one dimension, images side by side, and acceptance by patch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, canvas, numbers, same_length, series

ROLES = {"p": ("target", "solid"), "q": ("draft", "dash"), "accepted": ("accepted", "dot"),
         "residual": ("extra", "dashdot")}
GAP = 1                                            # pixels between images
BIN = 0.1                                          # width of a bar of a histogram


def densities(x: Sequence[float], curves: Mapping[str, Sequence[float]], title: str,
              drawn: Mapping[str, Sequence[float]] | None = None) -> go.Figure:
    """Densities over a real token; names in ROLES have fixed colours, others the next of the series.

    `drawn` are samples by name, shown as histograms that integrate to one: counted here, so that many of them are
    no burden for a page.
    """
    figure = canvas(title, "token", "density")
    for name, values in (drawn or {}).items():
        counts = Counter(math.floor(value / BIN) for value in values)
        bins = sorted(counts)
        figure.add_bar(x=[(at + 0.5) * BIN for at in bins], y=[counts[at] / (len(values) * BIN) for at in bins],
                       width=BIN, name=name, opacity=0.4, marker={"color": PALETTE["quiet"], "line": {"width": 0}})
    for place, (name, values) in enumerate(curves.items()):
        same_length(x=x, values=values)
        look = series(place)
        colour, dash = (PALETTE[ROLES[name][0]], ROLES[name][1]) if name in ROLES else (look["colour"], look["dash"])
        figure.add_scatter(x=numbers(x), y=numbers(values), name=name, mode="lines",
                           line={"color": colour, "dash": dash})
    return figure.update_yaxes(rangemode="tozero").update_layout(showlegend=True)


def image_grid(rows: Mapping[str, Sequence[Sequence[Sequence[float]]]], title: str, brightest: float = 16) -> go.Figure:
    """Images [n][8][8] of each method in a row of their own, the same place the same noise; levels are clipped."""
    same_length(**{name.replace(" ", "_"): images for name, images in rows.items()})
    side = len(next(iter(rows.values()))[0])
    step, lines = side + GAP, []
    for images in rows.values():
        for y in range(side):
            lines.append([None if x % step == side else clipped(images[x // step][y][x % step], brightest)
                          for x in range(len(images) * step - GAP)])
        lines.append([None] * (len(images) * step - GAP))
    figure = canvas(title, "image", "")
    figure.add_heatmap(z=lines[:-1], colorscale=[[0, "white"], [1, "black"]], zmin=0, zmax=brightest, showscale=False,
                       hoverinfo="skip")
    count = len(next(iter(rows.values())))
    figure.update_xaxes(tickvals=[i * step + side / 2 - 0.5 for i in range(count)],
                        ticktext=[str(i) for i in range(count)], constrain="domain")
    figure.update_yaxes(tickvals=[i * step + side / 2 - 0.5 for i in range(len(rows))], ticktext=list(rows),
                        autorange="reversed", scaleanchor="x", showgrid=False)
    return figure.update_layout(height=120 + 70 * len(rows))


def clipped(level: float, brightest: float) -> float:
    """A level between 0 and the brightest one, to a tenth."""
    return round(min(max(float(level), 0.0), brightest), 1)


def patch_acceptance(values: Mapping[str, Sequence[float | None]], title: str) -> go.Figure:
    """The share of tested drafts that was accepted at each patch, by method; gaps where none was tested."""
    figure = canvas(title, "patch, row by row", "share of tested drafts accepted")
    for place, (name, shares) in enumerate(values.items()):
        look = series(place)
        figure.add_scatter(x=list(range(len(shares))), y=numbers(shares), name=name, mode="lines+markers",
                           line={"color": look["colour"], "dash": look["dash"]}, marker={"symbol": look["symbol"]})
    return figure.update_yaxes(range=[-.03, 1.04]).update_layout(showlegend=True)
