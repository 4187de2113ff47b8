"""What drafter and target do at each moment: a lane for each, rolled-back work striped, waiting a thin bar."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, canvas, hatched

Span = Sequence                                    # (lane, start, end, kind, round)
LOOKS = {"draft": ("draft", "."), "verify": ("target", ""), "verdict": ("extra", "+"),
         "rolled back": ("rejected", "/"), "wait": ("quiet", "-")}


def schedule_timeline(spans: Sequence[Span], title: str | None = None, unit: str = "seconds", scale: float = 1.0,
                      window: Sequence[float] | None = None, time: str = "simulated") -> go.Figure:
    """Lanes with what they did: `spans` are (lane, start, end, kind, round), kinds draft, verify, verdict, rolled back
    and wait; starts and ends are multiplied by `scale` to get the `unit`.

    `window` is the part that is shown, in the unit; `time` says which time it is: measured in turn, measured in
    parallel or simulated. Waiting is a thin bar.
    """
    unknown = {span[3] for span in spans} - set(LOOKS)
    if unknown:
        raise ValueError(f"spans are {', '.join(LOOKS)}, got {sorted(unknown)[0]}")
    lanes = list(dict.fromkeys(span[0] for span in sorted(spans, key=lambda span: span[0])))
    low, high = window or (0.0, scale * max((span[2] for span in spans), default=1.0))
    shown = [span for span in spans if scale * span[2] > low and scale * span[1] < high]
    inside = [(lane, max(start, low / scale), min(end, high / scale), *more) for lane, start, end, *more in shown]
    figure = canvas(title or said(inside, lanes), f"{time} time ({unit})", "")
    for kind, (role, pattern) in LOOKS.items():
        some = [span for span in shown if span[3] == kind]
        thin = kind == "wait"
        figure.add_bar(x=[scale * (span[2] - span[1]) for span in some], base=[scale * span[1] for span in some],
                       y=[span[0] for span in some], orientation="h", name=kind, width=.12 if thin else .6,
                       marker=hatched(PALETTE[role], pattern) | {"line": {"color": "white", "width": 0 if thin else 1}},
                       customdata=[int(span[4]) + 1 for span in some], opacity=.5 if thin else 1.0,
                       hovertemplate="round %{customdata}, from %{base:.4~r}, %{x:.4~r} long<extra>%{fullData.name}"
                                     "</extra>")
    figure.update_xaxes(range=[float(low), float(high)])
    figure.update_yaxes(categoryorder="array", categoryarray=lanes[::-1], showgrid=False)
    return figure.update_layout(barmode="overlay", showlegend=True, height=210 + 60 * len(lanes))


def said(spans: Sequence[Span], lanes: Sequence[str]) -> str:
    """The share of each lane's time that waiting and rolled-back work take."""
    parts = []
    for lane in lanes:
        whole = sum(span[2] - span[1] for span in spans if span[0] == lane)
        if whole:
            lost, waits = (sum(span[2] - span[1] for span in spans if span[0] == lane and span[3] == kind) / whole
                           for kind in ("rolled back", "wait"))
            told = [f"waits {waits:.0%}" if waits else "never waits"] + [f"rolls back {lost:.0%}"] * bool(lost)
            parts.append(f"the {lane} {' and '.join(told)}" + (" of the time" if waits or lost else ""))
    return ("; ".join(parts)[:1].upper() + "; ".join(parts)[1:]) if parts else "Nothing was done"
