"""A lattice as a map: slots across, candidates down, shaded by log-probability, with paths drawn through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, SYMBOL, canvas, literal, numbers, same_length, series

LETTERS = 7                                        # of a token's text that fit into a cell
LOOKS = (series(0), series(2))                     # of paths; the cells already have the colour of drafts
LEFT, RIGHT = (-0.42, -0.32), 0.38                 # offsets of markers in a cell, in its corners: beside its text,
OVER, UNDER = -0.26, 0.26                          # and above or below it, where lines pass
Path = Sequence[int | None]                        # the candidate of each slot, 0 the best; None is none of them


def lattice(words: Sequence[Sequence[str]], logps: Sequence[Sequence[float]], paths: Mapping[str, Path] | None = None,
            came: Path | None = None, floor: float = -7.0, title: str | None = None,
            kept: Sequence[int] | None = None) -> go.Figure:
    """`words[i][j]` is candidate j of slot i, `logps[i][j]` its log-probability in nats; the shading ends at `floor`.

    At most two `paths`, each given by the ranks of its candidates in their slots, and `came`, the target's tokens. A
    path may be shorter than the lattice; a token that is no candidate is drawn in the row below all candidates. `kept`
    is the number of candidates of each slot that a search may use: a line is drawn below them.
    """
    same_length(words=words, logps=logps)
    paths = dict(paths or {})
    if not words or len(paths) > len(LOOKS):
        raise ValueError(f"a lattice has slots and at most {len(LOOKS)} paths beside the target's, got {len(words)} and"
                         f" {len(paths)}")
    deep = max(map(len, words))
    figure = canvas(title or _takeaway(came, len(words)),
                    "slot (tokens after the context); markers stand in a corner of their cell",
                    "candidate, likeliest first")
    figure.add_heatmap(x=list(range(1, len(words) + 1)), y=list(range(1, deep + 1)),
                       z=_rows([numbers(column) for column in logps], deep),
                       text=_rows([[_short(word) for word in column] for column in words], deep),
                       customdata=_rows([list(map(literal, column)) for column in words], deep),
                       texttemplate="%{text}", textfont={"size": 10}, xgap=1, ygap=1,
                       colorscale=[[0, "white"], [1, PALETTE["draft"]]], zmin=floor, zmax=0,
                       hovertemplate="slot %{x}, candidate %{y}: “%{customdata}”, %{z:.2f} nats<extra></extra>",
                       colorbar={"title": "log-probability<br>(nats)"})
    if kept is not None:
        _below(figure, kept)
    for look, shift, (name, path) in zip(LOOKS, LEFT, paths.items(), strict=False):
        _through(figure, name, path, deep, shift, look["colour"], look["dash"], look["symbol"])
    if came is not None:
        _through(figure, "the target's tokens", came, deep, RIGHT, PALETTE["target"], "dash", SYMBOL["target"])
    outside = any(place is None for path in (*paths.values(), came or ()) for place in path)
    figure.update_yaxes(range=[deep + (1.6 if outside else .6), .4], tickvals=[*range(1, deep + 1), deep + 1],
                        ticktext=[*map(str, range(1, deep + 1)), "none of them"], showgrid=False)
    figure.update_xaxes(dtick=1, range=[.5, len(words) + .5])
    return figure.update_layout(height=170 + 28 * (deep + outside), showlegend=True)


def _through(figure: go.Figure, name: str, path: Path, deep: int, shift: float, colour: str, dash: str,
             symbol: str) -> None:
    heights = [float((deep if place is None else place) + 1) for place in path]
    heights = [height + (UNDER if shift > 0 else OVER) for height in heights]
    figure.add_scatter(x=[slot + shift for slot in range(1, len(path) + 1)], y=heights, name=name,
                       mode="lines+markers", hoverinfo="name", line={"color": colour, "dash": dash, "width": 2},
                       marker={"symbol": symbol, "size": 7})


def _below(figure: go.Figure, kept: Sequence[int]) -> None:
    """A stepped line below the candidates that a search may use."""
    figure.add_scatter(x=[place + side for place in range(1, len(kept) + 1) for side in (-.5, .5)],
                       y=[n + .5 for n in kept for _ in range(2)], name="searched among those above", mode="lines",
                       line={"color": PALETTE["rejected"], "width": 3}, hoverinfo="name")


def _rows(columns: Sequence[Sequence], deep: int) -> list[list]:
    """Columns of candidates as rows of a map; None if a slot has fewer candidates."""
    return [[column[row] if row < len(column) else None for column in columns] for row in range(deep)]


def _short(word: str) -> str:
    return literal(word if len(word) <= LETTERS else word[:LETTERS - 1] + "…")


def _takeaway(came: Path | None, slots: int) -> str:
    if not came:
        return f"The likeliest tokens of {slots} slots"
    known, best = sum(place is not None for place in came), sum(place == 0 for place in came)
    return f"The target's token is a candidate in {known} of {len(came)} slots, the best in {best}"
