"""Speed by exit layer and draft length: the best cell is marked, and a line shows where drafting begins to pay."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import INK, PALETTE, canvas, known_cells, numbers

Interval = Sequence[float] | None
SCALE = [[0, "white"], [1, "#56B4E9"]]             # light, so that every number is read on it


def early_exit_grid(layers: Sequence[int], depths: Sequence[int], speeds: Sequence[Sequence[float | None]], kind: str,
                    spans: Sequence[Sequence[Interval]] = (), title: str | None = None) -> go.Figure:
    """`speeds[i][j]`, in times plain decoding, belongs to layers[i] and depths[j]; None leaves the cell empty.

    `spans` are written under their cells. `kind`, "predicted" or "measured", stands on the scale and in the title: one
    figure never mixes both.
    """
    known = known_cells(layers, depths, speeds)
    best, j, i = max(known, key=lambda cell: cell[0])
    said = f"{kind.capitalize()}: at best {best:.2f} times plain speed, exit {layers[i]}, depth {depths[j]}"
    figure = canvas(title or said, "depth k (drafted tokens)", "exit after layer")
    words = [[_word(speed, spans[a][b] if spans else None) for b, speed in enumerate(row)]
             for a, row in enumerate(speeds)]
    x, y, z = list(map(str, depths)), list(map(str, layers)), [numbers(row) for row in speeds]
    figure.add_heatmap(x=x, y=y, z=z, text=words, texttemplate="%{text}", colorscale=SCALE,
                       textfont={"color": INK}, xgap=1, ygap=1,
                       hovertemplate="exit %{y}, %{x} drafted: %{z:.3f} times<extra></extra>",
                       colorbar={"title": f"{kind}<br>speed-up<br>(times)"})
    if len(layers) > 1 and len(depths) > 1 and sum(value > 1 for value, *_ in known) != 1:    # around one cell a scrap
        figure.add_contour(x=x, y=y, z=z, contours={"start": 1, "end": 1, "size": 1, "coloring": "none"},
                           line={"color": PALETTE["accepted"], "width": 4, "dash": "dash", "smoothing": 0},
                           name="as fast as plain decoding", showscale=False, hoverinfo="skip",
                           showlegend=min(known)[0] < 1 < best)
    figure.add_shape(type="rect", x0=j - .5, x1=j + .5, y0=i - .5, y1=i + .5, name="the best cell", showlegend=True,
                     line={"color": PALETTE["rejected"], "width": 4})
    figure.update_yaxes(type="category", showgrid=False).update_xaxes(type="category")
    return figure.update_layout(height=230 + 60 * len(layers), showlegend=True)


def _word(speed: float | None, span: Interval) -> str:
    if speed is None:
        return ""
    return f"{speed:.2f}" + (f"<br>{span[0]:.2f}–{span[1]:.2f}" if span else "")
