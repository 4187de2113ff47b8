"""How far to draft: at each place of a text, what a rule drafts and what would have been kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.look import canvas, fill, same_length
from specdec_lib.figures.theory import curves


def draft_lengths(drafted: Sequence[int], right: Sequence[int], words: Sequence[str] | None = None,
                  title: str | None = None) -> go.Figure:
    """A bar for each place: tokens drafted and kept, drafted in vain, and those that would have been kept but stayed
    undrawn; `right` is how many a draft without end would keep there."""
    same_length(drafted=drafted, right=right, words=words)
    pairs = list(zip(drafted, right, strict=True))
    parts = {"kept": ("accepted", [min(n, m) for n, m in pairs]),
             "in vain": ("rejected", [max(0, n - m) for n, m in pairs]),
             "not drafted": ("extra", [max(0, m - n) for n, m in pairs])}
    said = (f"From {len(pairs)} places it would keep {sum(parts['kept'][1])} tokens, draft {sum(parts['in vain'][1])} "
            f"in vain, and miss {sum(parts['not drafted'][1])}")
    figure = canvas(title or said, "token of the output", "draft tokens from here")
    for name, (role, values) in parts.items():
        figure.add_bar(x=list(range(1, len(pairs) + 1)), y=[int(value) for value in values], name=name,
                       text=list(words) if words else None, textposition="none", marker=fill(role))
    return figure.update_layout(barmode="stack", showlegend=True)


def against(values: Sequence[float], speeds: Sequence[float], flat: Mapping[str, float], x_title: str,
            name: str = "this rule", title: str | None = None) -> go.Figure:
    """A rule's predicted speed along one parameter, beside speeds that do not know of it, such as an oracle's."""
    top = max(speeds)
    beside = ", ".join(f"{speed:.2f} for {other}" for other, speed in flat.items())
    said = f"Best at {values[list(speeds).index(top)]:g}: {top:.2f}, against {beside}"
    lines = {name: speeds} | {other: [speed] * len(values) for other, speed in flat.items()}
    return curves(values, lines, x_title, "times plain decoding, predicted", title or said)
