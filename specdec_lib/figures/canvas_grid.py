"""A canvas as a grid of tokens, shaded by confidence, with marks for what one round did to each position."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.board import SHADES
from specdec_lib.figures.theme import INK, PALETTE, canvas, literal, numbers, same_length, series, whiskers, with_legend

CELL = 38                                          # pixels
APART = 1.15                                       # a tick over the one before it, so that their numbers fit
MARKS = {"new": ("circle-open", "accepted"), "kept": ("square-open", "target"), "revised": ("hexagon-open", "rejected"),
         "hidden": ("diamond-open", "extra")}
SAID = {"new": "written by this forward", "kept": "decided again, same token", "revised": "decided again, changed",
        "hidden": "hidden, given back"}
GIVEN = "given"


def canvas_grid(words: Sequence[str], confidence: Sequence[float | None], roles: Sequence[str], columns: int,
                title: str) -> go.Figure:
    """`words[i]` at position i, row by row, `columns` to a row; "" is a mask. Shade is the confidence (None: white).

    `roles[i]` is a key of `MARKS`, which draws a symbol, "given" for what was never masked (bold), or anything else.
    """
    same_length(words=words, confidence=confidence, roles=roles)
    rows = -(-len(words) // columns)
    figure = canvas(title, "column", "row")
    shade = [[None] * columns for _ in range(rows)]
    letters = [[""] * columns for _ in range(rows)]
    for at, (word, value, role) in enumerate(zip(words, numbers(confidence), roles, strict=True)):
        shade[at // columns][at % columns] = value
        letters[at // columns][at % columns] = f"<b>{literal(word)}</b>" if role == GIVEN else literal(word)
    figure.add_heatmap(z=shade, text=letters, x=list(range(1, columns + 1)), y=list(range(1, rows + 1)), xgap=2, ygap=2,
                       zmin=0, zmax=1, colorscale=SHADES, colorbar={"title": "confidence"},
                       hovertemplate="row %{y}, column %{x}: %{text}, confidence %{z:.3f}<extra></extra>")
    places = range(len(words))                     # apart: a heatmap without any number draws no text
    figure.add_scatter(x=[at % columns + 1 for at in places], y=[at // columns + 1 for at in places], mode="text",
                       text=[letters[at // columns][at % columns] for at in places], hoverinfo="skip",
                       textfont={"color": INK, "size": 16}, showlegend=False)
    for role, (symbol, colour) in MARKS.items():
        found = [at for at, one in enumerate(roles) if one == role]
        if found:
            figure.add_scatter(x=[at % columns + 1 for at in found], y=[at // columns + 1 for at in found],
                               mode="markers", name=SAID[role], hoverinfo="name",
                               marker={"symbol": symbol, "size": 24, "color": PALETTE[colour], "line": {"width": 2}})
    if columns == 9 == rows:
        for line in (3.5, 6.5):
            figure.add_hline(y=line, line={"color": PALETTE["target"], "width": 2})
            figure.add_vline(x=line, line={"color": PALETTE["target"], "width": 2})
    figure.update_yaxes(range=[rows + .5, .5], showgrid=False, showticklabels=False, ticks="", scaleanchor="x")
    figure.update_xaxes(range=[.5, columns + .5], showticklabels=False, ticks="", constrain="domain")
    return figure.update_layout(height=200 + CELL * rows, showlegend=True)


def solved_by_forwards(solved: Mapping[str, Mapping[int, tuple[float, Sequence[float] | None]]],
                       title: str, x_range: Sequence[float] | None = None) -> go.Figure:
    """One line per rule: forwards -> (share of solved tasks, 95 % interval or None); `x_range` holds under a slider."""
    figure = canvas(title, "forwards in all", "share of solved tasks")
    for place, (name, points) in enumerate(solved.items()):
        look, x = series(place), sorted(points)
        values = [points[at][0] for at in x]
        figure.add_scatter(x=[at * (1 + .02 * place) for at in x], y=numbers(values), name=name, mode="lines+markers",
                           line={"color": look["colour"], "dash": look["dash"]},
                           marker={"symbol": look["symbol"], "size": 8}, hovertemplate="%{y:.3f}",
                           error_y=whiskers(values, [points[at][1] for at in x], look["colour"], thickness=1, width=3))
    ticks = list[float]()
    for at in sorted({at for points in solved.values() for at in points}):
        if not ticks or at > APART * ticks[-1]:
            ticks.append(at)
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{at:.3g}" for at in ticks])
    if x_range is not None:
        low, high = map(math.log10, x_range)
        figure.update_xaxes(range=[low - .05 * (high - low), high + .05 * (high - low)])
    return with_legend(figure.update_yaxes(range=[-.02, 1.05]))
