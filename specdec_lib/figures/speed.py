"""Results of a run: speed-ups with their intervals, tokens per forward, and the split of decode time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import (
    INK,
    PALETTE,
    canvas,
    fill,
    hover,
    literal,
    numbers,
    readable_on,
    same_length,
    series,
    whiskers,
    with_legend,
)

Interval = tuple[float, float] | None
BAR = {"thickness": 1.5, "width": 5}              # of an interval
PARTS = {"target": "target", "drafter": "draft", "overhead": "extra"}    # part of the time -> role of its colour


def speedups(names: Sequence[str], measured: Sequence[float | None], intervals: Sequence[Interval] | None = None,
             expected: Sequence[float | None] | None = None, title: str | None = None) -> go.Figure:
    """Measured speed-up over plain decoding with 95 % intervals, and the speed-up that the cost curve predicts."""
    same_length(names=names, measured=measured, intervals=intervals, expected=expected)
    intervals = intervals or [None] * len(names)
    figure = canvas(title or _fastest(names, measured, intervals), "", "times plain decoding")
    figure.add_bar(x=list(names), y=numbers(measured), name="measured, 95 % interval", marker=fill("accepted"),
                   error_y=whiskers(measured, intervals, INK, **BAR))
    if expected:
        figure.add_scatter(x=list(names), y=numbers(expected), name="expected from the cost curve", mode="markers",
                           marker={"symbol": "diamond-open", "size": 12, "color": PALETTE["target"], "line_width": 2})
    return _with_one(figure)


def by_family(families: Sequence[str], measured: Mapping[str, Sequence[float | None]],
              intervals: Mapping[str, Sequence[Interval]] | None = None,
              expected: Mapping[str, Sequence[float | None]] | None = None, title: str | None = None) -> go.Figure:
    """Speed-up of each method in each family of prompts, with intervals where they are known."""
    families = list(map(literal, families))        # a reader's own words
    figure = canvas(title or _best_family(families, measured), "family of prompts", "speed-up (times)")
    for place, (name, values) in enumerate(measured.items()):
        same_length(families=families, values=values)
        look = series(place)
        bounds = (intervals or {}).get(name, [None] * len(families))
        figure.add_scatter(x=list(families), y=numbers(values), name=name, mode="markers", offsetgroup=name,
                           cliponaxis=False, marker={"color": look["colour"], "symbol": look["symbol"], "size": 9},
                           error_y=whiskers(values, bounds, INK, **BAR))
        if expected and name in expected:
            figure.add_scatter(x=list(families), y=numbers(expected[name]), name=f"{name}, expected", mode="markers",
                               offsetgroup=name, marker={"color": look["colour"], "symbol": "line-ew-open", "size": 14})
    figure.update_layout(scattermode="group", scattergap=0.3)
    return with_legend(_with_one(figure))


def tokens_per_forward(names: Sequence[str], values: Sequence[float | None], title: str | None = None) -> go.Figure:
    """Tokens emitted per target forward; plain decoding is 1."""
    same_length(names=names, values=values)
    known = [(value, name) for name, value in zip(names, values, strict=True) if value is not None]
    best = "{1} emits {0:.2f} tokens per target forward".format(*max(known)) if known else "No method was measured"
    figure = canvas(title or best, "", "tokens per target forward")
    text = ["" if value is None else f"{value:.2f}" for value in values]
    figure.add_bar(x=list(names), y=numbers(values), marker=fill("extra"), text=text, textposition="outside",
                   showlegend=False, cliponaxis=False, hovertemplate=hover(), name="tokens per forward")
    return _with_one(figure)


def time_split(shares: Mapping[str, Mapping[str, float]], title: str | None = None) -> go.Figure:
    """Shares of the time of all parts: the target, the drafter and everything else, a bar for each method.

    Of a method in turn that is its decode time; where parts overlap, they take longer together than the decode.
    """
    rest = {name: 1 - split["target"] for name, split in shares.items()}
    most = max(rest, key=rest.__getitem__, default=None)
    said = "No method was measured" if most is None else \
        f"Outside the target, {most} spends {rest[most]:.0%} of the time of its parts, the most"
    figure = canvas(title or said, "share of the time of all parts (%)", "")
    for part, role in PARTS.items():
        values = [100 * float(split[part]) for split in shares.values()]
        figure.add_bar(y=list(shares), x=values, name=part, orientation="h", marker=fill(role),
                       hovertemplate=hover("y"),
                       text=[f"{value:.0f}" if value >= 4 else "" for value in values], insidetextanchor="middle",
                       textfont={"color": readable_on(PALETTE[role])})
    figure.update_layout(barmode="stack", height=160 + 40 * len(shares), yaxis={"autorange": "reversed"})
    return figure


def _fastest(names, measured, intervals) -> str:
    """The title that these numbers support; faster means that the interval lies above 1."""
    rows = [row for row in zip(names, measured, intervals, strict=True) if row[1] is not None]
    sure = [row for row in rows if row[2] and row[2][0] > 1]
    if sure:
        name, value, (low, high) = max(sure, key=lambda row: row[1])
        return f"{name} decodes {value:.2f} times as fast as plain decoding ({low:.2f} to {high:.2f})"
    if any(row[2] for row in rows):
        return "No method is surely faster than plain decoding here: no interval lies above 1"
    if not rows:
        return "No speed-up was measured"
    name, value, _ = max(rows, key=lambda row: row[1])
    return f"{name} shows {value:.2f} times the speed of plain decoding (no interval)"


def _best_family(families, measured) -> str:
    rows = [(value, name, family) for name, values in measured.items()
            for family, value in zip(families, values, strict=True) if value is not None]
    if not rows:
        return "No speed-up was measured"
    value, name, family = max(rows)
    return f"The largest speed-up is {value:.2f}, by “{name}” on {family}"


def _with_one(figure: go.Figure) -> go.Figure:
    """Adds a line at 1, the speed of plain decoding."""
    figure.add_hline(y=1, line={"color": PALETTE["target"], "dash": "dot", "width": 1.5})
    return figure.update_yaxes(rangemode="tozero")
