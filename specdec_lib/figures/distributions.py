"""Distributions over a few tokens (target, draft, residual), and the probability that each token is accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import (
    PALETTE,
    canvas,
    fill,
    hatched,
    hover,
    literal,
    numbers,
    same_length,
    series,
    with_legend,
)

ROLES = {"p": "target", "q": "draft", "residual": "extra", "emitted": "extra", "accepted": "accepted",
         "rejected": "rejected"}


def distributions(words: Sequence[str], probs: Mapping[str, Sequence[float | None]], title: str | None = None,
                  x_title: str = "token", y_title: str = "probability") -> go.Figure:
    """Distributions over the same tokens as grouped bars, none for None; the names in ROLES have fixed colours."""
    figure = canvas(title or _widest_gap(words, probs), x_title, y_title)
    for place, (name, values) in enumerate(probs.items()):
        same_length(words=words, values=values)
        look = series(place)
        marker = fill(ROLES[name]) if name in ROLES else hatched(look["colour"], look["pattern"])
        told = ["" if value is None else f"{value:.2f}" for value in values]
        figure.add_bar(x=list(map(literal, words)), y=numbers(values), name=name, text=told, textposition="outside",
                       cliponaxis=False, marker=marker, hovertemplate=hover())
    return with_legend(figure).update_yaxes(rangemode="tozero").update_xaxes(type="category")


def acceptance(words: Sequence[str], probs: Sequence[float], title: str | None = None,
               x_title: str = "drafted token") -> go.Figure:
    """The probability that each token is accepted if it is drafted; `x_title` says what the bars are if not tokens."""
    same_length(words=words, probs=probs)
    sure = sum(prob >= 1 for prob in probs)
    figure = canvas(title or f"{sure} of {len(words)} tokens are always accepted", x_title,
                    "probability of acceptance")
    figure.add_bar(x=list(map(literal, words)), y=numbers(probs), text=[f"{prob:.2f}" for prob in probs],
                   name="accepted", textposition="outside", cliponaxis=False, marker=fill("accepted"), showlegend=False,
                   hovertemplate=hover())
    figure.add_hline(y=1, line={"color": PALETTE["target"], "dash": "dot"})
    return figure.update_yaxes(range=[0, 1.15]).update_xaxes(type="category")


def _widest_gap(words, probs) -> str:
    """Names the token on which the first two distributions differ most, of those with a probability in both."""
    if len(probs) < 2:
        return "The distribution of the next token"
    (one, first), (other, second) = list(probs.items())[:2]
    gaps = {place: abs(a - b) for place, (a, b) in enumerate(zip(first, second, strict=True))
            if a is not None and b is not None}
    if not gaps:
        return f"{one} and {other} have no token in common"
    place = max(gaps, key=gaps.__getitem__)
    if gaps[place] < 5e-10:
        return f"{one} and {other} agree"
    return f"{one} and {other} differ most on “{literal(words[place])}”: {first[place]:.2f} against {second[place]:.2f}"
