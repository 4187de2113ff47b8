"""Stacks of drafters: nested rounds of one decode, the chosen path of drafters, predictions beside measurements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, SYMBOL, canvas, literal, numbers, same_length

ROW = 26                                           # pixels


class VerifiedRow(NamedTuple):
    """One forward that verifies: who verifies whom, and the words at `start`, `start` + 1, ... of the output."""

    label: str
    start: int                                     # counted from 1
    drafted: tuple[str, ...]
    accepted: int
    own: str = ""                                  # the verifier's own token; "" where none was emitted


def nested_rounds(rows: Sequence[VerifiedRow], title: str | None = None) -> go.Figure:
    """Every verification in order, downwards: what it accepted, what it rolled back, and its own token."""
    lost = sum(len(row.drafted) - row.accepted for row in rows)
    drafted = sum(len(row.drafted) for row in rows)
    said = title or f"{len(rows)} verifications roll back {lost} of the {drafted} tokens that they were given"
    figure = canvas(said, "token of the output", "")
    marks: dict[str, list[tuple[int, int, str]]] = {"accepted": [], "rejected": [], "extra": []}
    for place, row in enumerate(rows):
        for n, word in enumerate(row.drafted):
            marks["accepted" if n < row.accepted else "rejected"].append((row.start + n, place, word))
        if row.own:
            marks["extra"].append((row.start + row.accepted, place, row.own))
    said_of = {"accepted": "accepted", "rejected": "rolled back", "extra": "the verifier's own token"}
    for role, found in marks.items():
        look = ({"symbol": "diamond-open", "size": 16, "line": {"width": 2}} if role == "extra"      # around a cross
                else {"symbol": SYMBOL[role], "size": 10})
        figure.add_scatter(x=[x for x, _, _ in found], y=[y for _, y, _ in found], mode="markers",
                           text=[literal(word) for _, _, word in found], name=said_of[role],
                           hovertemplate="token %{x}: %{text}",
                           marker={"color": PALETTE[role], **look})
    figure.update_yaxes(tickvals=list(range(len(rows))), ticktext=[row.label for row in rows],
                        range=[len(rows) - 0.4, -0.6])
    return figure.update_layout(showlegend=True, height=190 + ROW * len(rows))


def stack_path(names: Sequence[str], costs: Sequence[float], latencies: Sequence[float], path: Sequence[int],
               blocks: Sequence[int], speed: float | None = None, title: str | None = None,
               top: float | None = None) -> go.Figure:
    """Models by the cost of a forward (across) and their least time per token (up), and the chosen path of drafters.

    `path` are places of drafters, lowest first, `blocks` their tokens; the last model is the target. Both quantities
    are in forwards of the target. `speed`, in times plain decoding, stands in the title; `top` fixes the vertical axis,
    so that a slider cannot rescale it.
    """
    same_length(names=names, costs=costs, latencies=latencies)
    same_length(path=path, blocks=blocks)
    chain = [*path, len(names) - 1]
    below = " under ".join(f"{names[i]} (T = {block})" for i, block in zip(path, blocks, strict=True))
    fast = "" if speed is None else f", {speed:.2f} times plain speed"
    figure = canvas(title or f"Predicted best: {below or 'no drafter'}{fast}",
                    "cost of a forward (target forwards)", "least time per token (target forwards)")
    pairs = [(i, j) for i, j in combinations(range(len(names)), 2) if (i, j) not in set(pairwise(chain))]
    figure.add_scatter(x=[x for i, j in pairs for x in (float(costs[i]), float(costs[j]), None)],
                       y=[y for i, j in pairs for y in (float(latencies[i]), float(latencies[j]), None)],
                       mode="lines", name="not chosen", hoverinfo="skip",
                       line={"color": PALETTE["quiet"], "dash": "dot", "width": 1})
    figure.add_scatter(x=[float(costs[i]) for i in chain], y=[float(latencies[i]) for i in chain], mode="lines",
                       name="chosen", hoverinfo="skip", line={"color": PALETTE["accepted"], "width": 4})
    figure.add_scatter(x=numbers(costs), y=numbers(latencies), mode="markers+text", text=list(names), name="models",
                       textposition=_name_sides(costs), cliponaxis=False,
                       marker={"color": PALETTE["extra"], "symbol": "circle", "size": 12})
    for (i, j), block in zip(pairwise(chain), blocks, strict=True):
        figure.add_annotation(x=(float(costs[i]) + float(costs[j])) / 2, showarrow=False, xshift=24, yshift=-10,
                              y=(float(latencies[i]) + float(latencies[j])) / 2, text=f"T = {block}")   # names: above
    figure.add_hline(y=float(costs[-1]), line={"color": PALETTE["target"], "dash": "dash", "width": 1.5},
                     annotation_text="plain decoding", annotation_position="bottom left")
    high = float(top or 1.25 * max(*costs, *latencies))
    figure.update_xaxes(range=[-.1 * max(costs), 1.08 * max(costs)])        # room for a name at the left
    return figure.update_yaxes(range=[-0.08 * high, high]).update_layout(showlegend=True)


def _name_sides(costs: Sequence[float]) -> list[str]:
    """Where each model's name stands: above its mark, and outwards of it where another mark is near."""
    out = []
    for place, cost in enumerate(costs):
        near = [(other, number) > (cost, place) for number, other in enumerate(costs)
                if number != place and abs(other - cost) < .1 * max(costs)]
        out.append("top center" if not near else "top left" if all(near) else "top right")
    return out


def predicted_measured(names: Sequence[str], predicted: Sequence[float], measured: Sequence[float], unit: str,
                       close: float = 0.1, title: str | None = None) -> go.Figure:
    """Each method by its predicted (across) and measured (up) quantity; lines mark equality and `close` around it."""
    same_length(names=names, predicted=predicted, measured=measured)
    near = sum(abs(p / m - 1) <= close for p, m in zip(predicted, measured, strict=True))
    figure = canvas(title or f"{near} of {len(names)} predictions lie within {close:.0%} of what was measured",
                    f"{unit}, predicted", f"{unit}, measured")
    ends = [0.9 * min(*predicted, *measured), 1.1 * max(*predicted, *measured)]
    for share, name, dash in ((1.0, "equal", "solid"), (1 / (1 + close), f"prediction {close:.0%} above", "dot"),
                              (1 / (1 - close), f"prediction {close:.0%} below", "dash")):
        figure.add_scatter(x=numbers(ends), y=[share * float(end) for end in ends], mode="lines", name=name,
                           hoverinfo="skip", line={"color": PALETTE["quiet"], "dash": dash, "width": 1.5})
    figure.add_scatter(x=numbers(predicted), y=numbers(measured), mode="markers", name="methods", text=list(names),
                       hovertemplate="%{text}<br>predicted %{x:.3g}, measured %{y:.3g}<extra></extra>",
                       marker={"color": PALETTE["extra"], "size": 11, "symbol": "circle"})
    return figure.update_layout(showlegend=True)
