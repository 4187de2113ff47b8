"""Draft lengths along a text: what a rule drafts at each position, and what the target would accept there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import (
    PALETTE,
    SYMBOL,
    canvas,
    fill,
    hover,
    literal,
    literals,
    numbers,
    same_length,
    series,
)
from specdec_lib.figures.theory import curves


def draft_lengths(drafted: Sequence[int], right: Sequence[int], words: Sequence[str] | None = None,
                  title: str | None = None) -> go.Figure:
    """A bar for each position: tokens drafted and kept, drafted and wasted, and not drafted although the target would
    accept them. `right` is the number of tokens that an endless draft would keep there."""
    same_length(drafted=drafted, right=right, words=words)
    pairs = list(zip(drafted, right, strict=True))
    parts = {"kept": ("accepted", [min(n, m) for n, m in pairs]),
             "wasted": ("rejected", [max(0, n - m) for n, m in pairs]),
             "not drafted": ("extra", [max(0, m - n) for n, m in pairs])}
    said = (f"From {len(pairs)} positions it keeps {sum(parts['kept'][1])} drafted tokens, wastes "
            f"{sum(parts['wasted'][1])} and misses {sum(parts['not drafted'][1])}")
    figure = canvas(title or said, "token of the output", "draft tokens from here")
    for name, (role, values) in parts.items():
        figure.add_bar(x=list(range(1, len(pairs) + 1)), y=[int(value) for value in values], name=name,
                       text=literals(words), textposition="none", marker=fill(role))
    return figure.update_layout(barmode="stack", showlegend=True)


def speed_by_parameter(values: Sequence[float], speeds: Sequence[float], flat: Mapping[str, float], x_title: str,
                       name: str = "this rule", title: str | None = None, y_range: Sequence[float] | None = None
                       ) -> go.Figure:
    """A rule's predicted speed by one parameter; `flat` speeds do not depend on it, such as an oracle's.

    `y_range` fixes the axis of speeds under a slider.
    """
    top = max(speeds)
    beside = ", ".join(f"{speed:.2f} for {other}" for other, speed in flat.items())
    said = f"Best at {values[list(speeds).index(top)]:g}: {top:.2f}, against {beside}"
    lines = {name: speeds} | {other: [speed] * len(values) for other, speed in flat.items()}
    return curves(values, lines, x_title, "times plain decoding, predicted", title or said, y_range)


def stopping_points(turns: Mapping[str, Sequence[tuple[int, int]]], signals: Mapping[str, Sequence[float | None]],
                    words: Sequence[str], title: str | None = None) -> go.Figure:
    """Where policies stop along the first `words` of a text: a row for each policy, the drafter's signals above.

    `turns` are (drafted, kept) of every round from the first token on. Kept tokens and the target's own are drawn on
    the row, wasted tokens below it at the positions they were drafted for.
    """
    same_length(words=words, **{f"signal {name}": values for name, values in signals.items()})
    marks = {role: _marks(turns, role, len(words)) for role in ("accepted", "extra", "rejected")}
    least = min(turns, key=lambda name: _rounds(turns[name], len(words)))
    said = (f"Of {len(turns)} policies “{least}” writes these {len(words)} tokens in the fewest rounds: "
            f"{_rounds(turns[least], len(words))}")
    figure = canvas(title or said, "token of the output", "")
    for (role, places), name in zip(marks.items(), ("kept", "the target's own", "wasted"), strict=True):
        figure.add_scatter(x=[x for x, _ in places], y=[y for _, y in places], mode="markers", name=name,
                           text=[literal(words[x - 1]) for x, _ in places],
                           marker={"color": PALETTE[role], "symbol": SYMBOL[role], "size": 6})
    high = 110 * len(signals) + 34 * len(turns)
    figure.update_yaxes(domain=[0, 34 * len(turns) / high], tickvals=list(range(len(turns))), ticktext=list(turns),
                        range=[len(turns) - .4, -.6])
    for place, (name, values) in enumerate(signals.items(), 2):
        bottom = (34 * len(turns) + 110 * (place - 2) + 24) / high
        figure.add_scatter(x=list(range(1, len(words) + 1)), y=numbers(values), mode="lines", name=name, xaxis="x",
                           yaxis=f"y{place}", showlegend=False,
                           line={"color": PALETTE["draft"], "width": 2, "dash": series(place - 2)["dash"]})
        figure.update_layout({f"yaxis{place}": {"domain": [bottom, bottom + 80 / high], "title": name, "anchor": "x"}})
    return figure.update_layout(height=high + 150, showlegend=True)


def regrets(found: Mapping[str, float], title: str | None = None) -> go.Figure:
    """Predicted time beyond the oracle's, as a share of the oracle's, a bar for each policy."""
    least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    said = f"“{least}” takes {found[least]:.0%} more time than the oracle, “{most}” {found[most]:.0%} more"
    figure = canvas(title or said, "time beyond the oracle's, predicted (%)", "")
    figure.add_bar(y=list(found), x=[100 * float(value) for value in found.values()], orientation="h",
                   marker=fill("rejected"), text=[f"{value:.0%}" for value in found.values()], textposition="outside",
                   cliponaxis=False, showlegend=False, hovertemplate=hover("y"), name="time beyond the oracle's (%)")
    return figure.update_layout(height=160 + 30 * len(found), yaxis={"autorange": "reversed"})


def _marks(turns: Mapping[str, Sequence[tuple[int, int]]], role: str, shown: int) -> list[tuple[int, float]]:
    """Positions, counted from 1, and heights of one kind of token."""
    out: list[tuple[int, float]] = []
    for row, own in enumerate(turns.values()):
        place = 1
        for drafted, kept in own:
            spans = {"accepted": (range(place, place + kept), 0.0), "extra": ((place + kept,), 0.0),
                     "rejected": (range(place + kept, place + drafted), 0.3)}
            at, below = spans[role]
            out += [(x, row + below) for x in at if x <= shown]
            place += kept + 1
    return out


def _rounds(turns: Sequence[tuple[int, int]], shown: int) -> int:
    """The number of rounds that emit the first `shown` tokens."""
    left, rounds = shown, 0
    for _, kept in turns:
        if left <= 0:
            break
        left, rounds = left - kept - 1, rounds + 1
    return rounds
