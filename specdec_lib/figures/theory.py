"""Curves and maps: acceptance by depth, cost by width, and the speed that theory predicts from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, canvas, numbers, same_length, series, whiskers, with_legend

WHOLE = 16                                         # whole numbers as far apart as this have a tick each


def curves(x: Sequence[float], lines: Mapping[str, Sequence[float | None]], x_title: str, y_title: str,
           title: str, y_range: Sequence[float] | None = None, level: float | None = None,
           x_range: Sequence[float] | None = None, points: Sequence[str] = (),
           spans: Mapping[str, Sequence[Sequence[float] | None]] | None = None) -> go.Figure:
    """One line for each name over the same x; the axis titles name quantities and units.

    `y_range` and `x_range` fix the axes, so that a slider cannot rescale them; `level` draws a horizontal line. `spans`
    are whiskers of some lines, from the lowest to the highest value at each x. Names in `points` have marks without a
    line: their neighbours have nothing to do with each other.
    """
    figure = canvas(title, x_title, y_title)
    for place, (name, values) in enumerate(lines.items()):
        same_length(x=x, values=values)
        look = series(place)
        figure.add_scatter(x=numbers(x), y=numbers(values), name=str(name),
                           mode="markers" if name in points else "lines+markers",
                           error_y=whiskers(values, (spans or {}).get(name, [None] * len(values)), look["colour"]),
                           line={"color": look["colour"], "dash": look["dash"]},
                           marker={"symbol": look["symbol"], "size": 8})
    if x and all(float(value).is_integer() for value in x) and max(x) - min(x) <= WHOLE:
        figure.update_xaxes(dtick=1)
    if y_range is not None:
        figure.update_yaxes(range=list(map(float, y_range)))
    if x_range is not None:
        figure.update_xaxes(range=list(map(float, x_range)))
    if level is not None:
        figure.add_hline(y=level, line={"color": PALETTE["target"], "dash": "dot", "width": 1.5})
    return with_legend(figure)


def conditional_acceptance(by_method: Mapping[str, Sequence[float | None]], title: str | None = None) -> go.Figure:
    """Probability of acceptance at each depth, given that everything above was accepted; None leaves a gap."""
    deepest = max((len(values) for values in by_method.values()), default=0)
    padded = {name: [*values, *[None] * (deepest - len(values))] for name, values in by_method.items()}
    first = {name: values[0] for name, values in by_method.items() if len(values) and values[0] is not None}
    top = f"{max(first.values()):.0%}" if first else ""
    best = [f"“{name}”" for name, rate in first.items() if f"{rate:.0%}" == top]        # those shown alike are a tie
    most = f" most often with {' and '.join(best)}: " if len(first) > 1 else " in "
    said = f"The first token of a draft is accepted{most}{top}" if first else "No drafts"
    figure = curves(range(1, deepest + 1), padded, "depth in the draft (tokens)",
                    "acceptance, given all before", title or said)
    return figure.update_yaxes(range=[-.03, 1.04], tickformat=".0%")


def cost_curve(widths: Sequence[int], seconds: Sequence[float], nodes: int | None = None, bound: float = 1.25,
               title: str | None = None, top: float | None = None) -> go.Figure:
    """Milliseconds of one forward by tokens fed; `nodes` shades drafts that cost at most `bound` times one token.

    `top` fixes the largest milliseconds shown, so that a slider cannot rescale the axis.
    """
    same_length(widths=widths, seconds=seconds)
    widest, ratio = widths[-1], seconds[-1] / seconds[0]
    said = f"Feeding {widest} tokens takes {ratio:.1f} times as long as feeding {widths[0]}"
    figure = canvas(title or said, "tokens fed in one forward", "milliseconds")
    figure.add_scatter(x=numbers(widths), y=[1000 * float(value) for value in seconds], mode="lines+markers",
                       name="one forward", line={"color": PALETTE["target"]}, marker={"size": 8})
    figure.add_scatter(x=[float(widths[0]), float(widest)], y=[1000 * bound * float(seconds[0])] * 2, mode="lines",
                       name=f"{bound:g} x one token", line={"color": PALETTE["rejected"], "dash": "dash"})
    if nodes is not None:
        figure.add_vrect(x0=float(widths[0]), x1=nodes + 1, fillcolor=PALETTE["accepted"], opacity=0.15, line_width=0,
                         annotation_text=f"{nodes} draft nodes + 1", annotation_position="bottom right")
    figure.update_yaxes(rangemode="tozero") if top is None else figure.update_yaxes(range=[0.0, float(top)])
    return with_legend(figure)


def tokens_by_depth(depths: Sequence[int], by_alpha: Mapping[float, Sequence[float]],
                    title: str | None = None) -> go.Figure:
    """Expected tokens per target forward by depth of the draft, a line for each acceptance probability alpha."""
    top = max(by_alpha)
    said = f"{depths[-1]} drafted tokens at alpha = {top:g} give {by_alpha[top][-1]:.1f} tokens per forward"
    lines = {f"alpha = {alpha:g}": values for alpha, values in by_alpha.items()}
    return curves(depths, lines, "depth k (drafted tokens)", "tau (tokens per target forward)", title or said)


def speed_map(alphas: Sequence[float], costs: Sequence[float], speedups: Sequence[Sequence[float]],
              title: str | None = None) -> go.Figure:
    """Speed-up by alpha (across) and c (up) as contours; `speedups[i][j]` belongs to costs[i], alphas[j].

    A white line marks where drafting begins to pay: just above 1, because a best depth of 0 makes 1 a plateau. Speeds
    above 4 share one colour, which the colour bar says.
    """
    same_length(costs=costs, speedups=speedups)
    best = max(max(row) for row in speedups)
    top = min(best, 4.0)                           # slopes near 1 matter most; everything faster shares one colour
    ticks = [half / 2 for half in range(int(2 * top) + 1)]
    told = [f"{tick:g}" for tick in ticks[:-1]] + [f"{ticks[-1]:g}" + " and more" * (best > top)]
    figure = canvas(title or f"Anywhere on this map, the speed-up is at most {best:.1f}",
                    "alpha (probability that a drafted token is accepted)",
                    "c (cost of a draft step in target forwards)")
    figure.add_contour(x=numbers(alphas), y=numbers(costs), z=[numbers(row) for row in speedups], colorscale="Cividis",
                       zmax=top, zmin=min(min(row) for row in speedups),
                       contours={"start": 0, "end": top, "size": 0.5, "showlabels": True,
                                 "labelfont": {"color": "white", "size": 12}}, line={"width": 1},
                       colorbar={"title": "speed-up<br>(times)", "tickvals": ticks, "ticktext": told})
    figure.add_contour(x=numbers(alphas), y=numbers(costs), z=[numbers(row) for row in speedups], showscale=False,
                       contours={"start": 1.001, "end": 1.001, "size": 1, "coloring": "none"},
                       line={"color": "white", "width": 4, "dash": "dash"}, name="speed-up 1", hoverinfo="skip")
    return figure
