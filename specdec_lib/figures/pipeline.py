"""A pipeline over time: which token is in which stage, and what was cancelled."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, canvas, fill, readable_on, same_length


def pipeline(stages: Sequence[int], tokens: Sequence[int], starts: Sequence[float], ends: Sequence[float],
             wanted: Sequence[bool], names: Sequence[str], title: str | None = None, unit: str = "layer-times",
             longest: float | None = None) -> go.Figure:
    """A row for each stage, a bar for each token in it; tokens that were cancelled have a look of their own.

    `stages` are places in `names`; `longest` fixes the time axis, so that a slider cannot rescale it.
    """
    same_length(stages=stages, tokens=tokens, starts=starts, ends=ends, wanted=wanted)
    spent = [float(end - start) for start, end in zip(starts, ends, strict=True)]
    lost = sum(time for time, kept in zip(spent, wanted, strict=True) if not kept)
    said = f"{lost / (sum(spent) or 1.0):.0%} of the busy time goes into tokens that are cancelled"
    figure = canvas(title or said, f"time ({unit})", "")
    for role, kept, name in (("accepted", True, "in the text"), ("rejected", False, "cancelled")):
        mine = [i for i, one in enumerate(wanted) if bool(one) == kept]
        figure.add_bar(x=[spent[i] for i in mine], y=[names[stages[i]] for i in mine], orientation="h", name=name,
                       base=[float(starts[i]) for i in mine], text=[str(tokens[i]) for i in mine],
                       textposition="inside", insidetextanchor="middle", textangle=0, marker=fill(role),
                       textfont={"color": readable_on(PALETTE[role])}, customdata=[float(starts[i]) for i in mine],
                       hovertemplate="token %{text} in %{y} from %{customdata} to %{x}"       # x of a bar is its end
                                     "<extra>%{fullData.name}</extra>")
    figure.update_xaxes(range=[0.0, float(longest or max(ends, default=1.0))])
    figure.update_yaxes(categoryorder="array", categoryarray=list(names), autorange="reversed")
    return figure.update_layout(barmode="overlay", height=190 + 44 * len(names), showlegend=True,
                                uniformtext={"minsize": 8, "mode": "hide"})
