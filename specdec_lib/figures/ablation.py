"""Ablation figures: the gain of each step, the time per token by part of the round, and the source of each draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import (
    PALETTE,
    canvas,
    fill,
    hatched,
    hover,
    numbers,
    readable_on,
    same_length,
    series,
    whiskers,
)

ROLES = {"target": "target", "what": "draft", "how": "extra", "when": "rejected"}      # part of a round -> its colour
MEANING = {"circle": "interval above 1", "circle-open": "not told apart from 1", "x": "interval below 1"}
Interval = Sequence[float] | None


def ratios(names: Sequence[str], values: Sequence[float | None], intervals: Sequence[Interval],
           title: str | None = None, axis: str = "times as fast (95 % interval)") -> go.Figure:
    """Speed ratios of pairs of methods, a row each with its 95 % interval; above 1 is faster.

    With another `title` and `axis` it draws the ratios of any quantity of which more is better.
    """
    same_length(names=names, values=values, intervals=intervals)
    above = sum(bool(span and span[0] > 1) for span in intervals)
    below = sum(bool(span and span[1] < 1) for span in intervals)
    said = f"By their intervals, of {len(names)} comparisons {above} are faster and {below} slower"
    figure = canvas(title or said, axis, "")
    rows = [row for row in zip(names, values, intervals, strict=True) if row[1] is not None]
    kept, speeds, spans = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    marks = ["circle-open" if not span or span[0] <= 1 <= span[1] else "circle" if span[0] > 1 else "x"
             for span in spans]
    figure.add_scatter(x=numbers(speeds), y=kept, mode="markers", showlegend=False,
                       error_x=whiskers(speeds, spans, PALETTE["target"]),
                       marker={"symbol": marks, "size": 11, "color": PALETTE["extra"]})
    for symbol, name in MEANING.items():
        if symbol in marks:
            figure.add_scatter(x=[None], y=[None], mode="markers", name=name, hoverinfo="skip",
                               marker={"symbol": symbol, "size": 11, "color": PALETTE["extra"]})
    figure.add_vline(x=1, line={"color": PALETTE["target"], "dash": "dot", "width": 1.5})
    return figure.update_layout(height=160 + 40 * len(kept), showlegend=True, yaxis={
        "range": [len(kept) - 0.4, -0.6], "categoryorder": "array", "categoryarray": kept})


def round_split(parts: Mapping[str, Mapping[str, float]], title: str | None = None) -> go.Figure:
    """Milliseconds per emitted token in when, what, target and how, a bar for each method."""
    total = {name: sum(split.values()) for name, split in parts.items()}
    least = min(total, key=total.__getitem__, default=None)
    said = "No method was measured" if least is None else \
        f"{least} takes the least time per token: {total[least]:.1f} ms"
    figure = canvas(title or said, "ms per token", "")
    for part, role in ROLES.items():
        values = [split[part] for split in parts.values()]
        figure.add_bar(y=list(parts), x=numbers(values), name=part, orientation="h", marker=fill(role),
                       hovertemplate=hover("y"),
                       text=[f"{value:.1f}" if value >= 0.05 * max(total.values()) else "" for value in values],
                       insidetextanchor="middle", textfont={"color": readable_on(PALETTE[role])})
    return figure.update_layout(barmode="stack", height=160 + 40 * len(parts), yaxis={"autorange": "reversed"})


def shares(mix: Mapping[str, Mapping[str, float]], hints: Mapping[str, Mapping[str, str]] | None = None,
           title: str | None = None) -> go.Figure:
    """Share of the rounds that each source drafted, a bar for each method; `hints` appear on hover."""
    sources = list(dict.fromkeys(source for own in mix.values() for source in own))
    last, own = list(mix.items())[-1] if mix else ("", {})
    most = max(own, key=own.__getitem__, default=None)
    said = "No round was measured" if most is None else f"Of the rounds of {last} {own[most]:.0%} are drafted by {most}"
    figure = canvas(title or said, "share of rounds (%)", "")
    for place, source in enumerate(sources):
        look = series(place)
        values = [100 * float(own.get(source, 0.0)) for own in mix.values()]
        figure.add_bar(y=list(mix), x=values, name=source, orientation="h",
                       marker=hatched(look["colour"], look["pattern"]),
                       hovertext=[(hints or {}).get(name, {}).get(source, "") for name in mix],
                       text=[f"{value:.0f}" if value >= 5 else "" for value in values], insidetextanchor="middle",
                       hovertemplate=hover("y", " %{hovertext}"), textfont={"color": readable_on(look["colour"])})
    return figure.update_layout(barmode="stack", height=160 + 40 * len(mix), yaxis={"autorange": "reversed"})
