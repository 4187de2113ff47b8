"""A trigger along a text: its signal, where it fires, and how often it is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, canvas, fill, literals, numbers, same_length, series


def histogram(values: Sequence[float], threshold: float, name: str = "entropy (nats)", step: float = 0.25,
              title: str | None = None) -> go.Figure:
    """Histogram of the values, split at the threshold; a bar counts [edge, edge + step)."""
    if not values or step <= 0:
        raise ValueError(f"a histogram needs values and a step above zero, got {len(values)} and {step}")
    below = sum(value <= threshold for value in values) / len(values)
    figure = canvas(title or f"{below:.0%} of {len(values)} values are at or below {threshold:g}", name, "tokens")
    for said, role, some in (("at or below", "draft", [v for v in values if v <= threshold]),
                             ("above", "target", [v for v in values if v > threshold])):
        bins = [int(value // step) for value in some]
        held = sorted(set(bins))
        figure.add_bar(x=[float(step * (place + .5)) for place in held], y=[bins.count(place) for place in held],
                       width=step, name=f"{said} the threshold", marker=fill(role))
    figure.add_vline(x=threshold, line={"color": PALETTE["rejected"], "dash": "dash"})
    return figure.update_layout(barmode="stack", bargap=0)


KINDS = {(True, True): ("fires, and it pays", "accepted", "circle"),
         (True, False): ("fires, and it does not pay", "rejected", "x"),
         (False, True): ("missed", "extra", "diamond-open")}


def trigger(entropies: Sequence[float], means: Sequence[float | None], threshold: float, fires: Sequence[bool],
            worth: Sequence[bool | None], words: Sequence[str] | None = None, title: str | None = None) -> go.Figure:
    """Entropy along a text, the mean that the trigger compares with its threshold, and its decisions against an oracle.

    `worth` is None where the choice does not matter: such positions have no mark. Correct silence has none either.
    """
    same_length(entropies=entropies, means=means, fires=fires, worth=worth, words=words)
    pairs = list(zip(fires, worth, strict=True))
    hits, fired = pairs.count((True, True)), sum(f and w is not None for f, w in pairs)
    figure = canvas(title or f"Where the choice matters, it fires {fired} times, {hits} of them rightly",
                    "token of the output", "nats")
    text, x = literals(words), list(range(1, len(fires) + 1))
    figure.add_scatter(x=x, y=numbers(entropies), mode="lines", name="entropy of this token", text=text,
                       line={"color": PALETTE["quiet"], "width": 1})
    figure.add_scatter(x=x, y=numbers(means), mode="lines", name="mean before it", text=text,
                       line={"color": PALETTE["draft"], "width": 2, "dash": "dot"})
    for kind, (said, role, symbol) in KINDS.items():
        where = [place for place, pair in enumerate(pairs) if pair == kind]
        figure.add_scatter(x=[place + 1 for place in where], y=numbers([means[place] for place in where]), name=said,
                           mode="markers", text=[text[place] for place in where] if text else None,
                           marker={"symbol": symbol, "size": 9, "color": PALETTE[role]})
    return figure.add_hline(y=threshold, line={"color": PALETTE["target"], "dash": "dash"},
                            annotation_text=f"threshold {threshold:g}", annotation_position="top right")


def precision_recall(points: Mapping[str, tuple[float | None, float | None]],
                     line: Sequence[tuple[float | None, float | None]] = (), line_name: str = "every threshold",
                     title: str | None = None) -> go.Figure:
    """Rules as points (recall, precision); `line` is one rule along its parameter. Undefined points are left out."""
    defined = {name: (recall, precision) for name, (recall, precision) in points.items()
               if recall is not None and precision is not None}
    best = max(defined, key=lambda name: defined[name][1], default=None)
    said = f"The most precise is {best}: {defined[best][1]:.0%} of its firings are right" if best else "No rule fires"
    figure = canvas(title or said, "recall: share of what was worth it", "precision: share of firings worth it")
    known = [point for point in line if None not in point]
    if known:
        figure.add_scatter(x=numbers([x for x, _ in known]), y=numbers([y for _, y in known]), mode="lines",
                           name=line_name, line={"color": PALETTE["quiet"], "width": 2})
    for place, (name, (recall, precision)) in enumerate(defined.items()):
        look = series(place)
        figure.add_scatter(x=[float(recall)], y=[float(precision)], name=name, mode="markers",
                           marker={"color": look["colour"], "symbol": look["symbol"], "size": 12})
    return (figure.update_xaxes(range=[-.03, 1.05], tickformat=".0%").update_layout(showlegend=True)
            .update_yaxes(range=[-.03, 1.05], tickformat=".0%"))
