"""Training figures: rates during a run, the loss weight of each depth, and drafters before and after training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, canvas, hatched, hover, numbers, same_length, series, with_legend

NOTHING = "No trained drafter yet"
CROWDED = 20                                       # more bars than this have their numbers upright
Points = Sequence[tuple[float, float | None]]


def training_curves(runs: Mapping[str, Points], y_title: str = "tokens per target forward",
                    x_title: str = "minutes of training", title: str | None = None,
                    laws: Sequence[str] = ()) -> go.Figure:
    """One line for each training run, of points (x, y) measured during training; runs may differ in x.

    A run of one point is a large mark. Names in `laws` were computed, not measured: a line without marks.
    """
    figure = canvas(title or _furthest(runs, y_title), x_title, y_title)
    for place, (name, points) in enumerate(runs.items()):
        look = series(place)
        lone = len(points) == 1
        figure.add_scatter(x=numbers([x for x, _ in points]), y=numbers([y for _, y in points]), name=name,
                           mode="lines" if name in laws else "markers" if lone else "lines+markers",
                           line={"color": look["colour"], "dash": look["dash"]},
                           marker={"symbol": look["symbol"], "size": 12 if lone else 6})
    return with_legend(figure)


def depth_weights(rules: Mapping[str, Sequence[float]], title: str | None = None) -> go.Figure:
    """The share of a loss rule's weight at each draft depth; the weights of a rule are scaled to sum to one."""
    shares = {name: [float(weight) / sum(weights) for weight in weights] for name, weights in rules.items()}
    first = {name: values[0] for name, values in shares.items()}
    most, least = max(first, key=first.__getitem__), min(first, key=first.__getitem__)
    said = f"{most} spends {first[most]:.0%} of its weight on the first token, {least} {first[least]:.0%}"
    figure = canvas(title or said, "depth in the draft (tokens)", "share of the weight")
    for place, (name, values) in enumerate(shares.items()):
        look = series(place)
        figure.add_bar(x=list(range(1, len(values) + 1)), y=values, name=name,
                       marker=hatched(look["colour"], look["pattern"]))
    figure.update_yaxes(tickformat=".0%", range=[0, 1]).update_xaxes(dtick=1)
    return figure.update_layout(barmode="group", showlegend=True)


def gains(names: Sequence[str], stages: Mapping[str, Sequence[float | None]], title: str | None = None) -> go.Figure:
    """Tokens per target forward of each drafter at each stage, such as untrained and trained; None draws no bar."""
    for values in stages.values():
        same_length(names=names, values=values)
    figure = canvas(title or _most_gained(names, list(stages.values())), "", "tokens per target forward")
    turn = -90 if len(names) * len(stages) > CROWDED else 0
    for place, (stage, values) in enumerate(stages.items()):
        look = series(place)
        text = ["" if value is None else f"{value:.2f}" for value in values]
        figure.add_bar(x=list(names), y=numbers(values), name=stage, text=text, textposition="outside", textangle=turn,
                       marker=hatched(look["colour"], look["pattern"]), cliponaxis=False, hovertemplate=hover())
    most = max((value for values in stages.values() for value in values if value is not None), default=1.0)
    figure.update_yaxes(range=[0, max(1.1, (1.2 if turn else 1.1) * most)])    # the numbers stand above the bars
    figure.add_hline(y=1, line={"color": PALETTE["target"], "dash": "dash"}, name="plain decoding", showlegend=True)
    return figure.update_layout(barmode="group", showlegend=True)


def _furthest(runs: Mapping[str, Points], what: str) -> str:
    """Names the run that changed most, with its first and last value."""
    known = {name: [y for _, y in points if y is not None] for name, points in runs.items()}
    known = {name: values for name, values in known.items() if values}
    if not known:
        return NOTHING
    name = max(known, key=lambda one: abs(known[one][-1] - known[one][0]))
    return f"{name}: {what} from {known[name][0]:.2f} to {known[name][-1]:.2f}"


def _most_gained(names: Sequence[str], stages: Sequence[Sequence[float | None]]) -> str:
    """Names the drafter that gained most between the first and the last stage at which it was measured."""
    spans = []
    for place, name in enumerate(names):
        known = [value for values in stages if (value := values[place]) is not None]
        if len(known) > 1:
            spans.append((known[-1] - known[0], name, known[0], known[-1]))
    if not spans:
        return NOTHING
    _, name, first, last = max(spans)
    verb = "gains most: from" if len(spans) > 1 else "goes from"
    return f"{name} {verb} {first:.2f} to {last:.2f} tokens per target forward"
