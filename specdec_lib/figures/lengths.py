"""Draft lengths of each round: tokens allowed by the rule, tokens generated, and tokens accepted by the target."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, canvas, fill, same_length


def draft_lengths_by_round(asked: Sequence[int], generated: Sequence[int], accepted: Sequence[int],
                           oracle: Sequence[int] = (), title: str | None = None) -> go.Figure:
    """Tokens of every round: `asked` as steps, `generated` before an end token as marks, `accepted` as bars.

    `oracle`, if given, is the best length at the position where each round began.
    """
    same_length(asked=asked, generated=generated, accepted=accepted, oracle=oracle or None)
    said = (f"{sum(accepted)} of {sum(generated)} generated tokens are accepted in {len(asked)} rounds; "
            f"lengths from {min(asked)} to {max(asked)}" if asked else "No rounds")
    figure = canvas(title or said, "round", "tokens")
    turns = list(range(1, len(asked) + 1))
    figure.add_bar(x=turns, y=[int(n) for n in accepted], name="accepted", marker=fill("accepted"))
    figure.add_scatter(x=turns, y=[int(n) for n in generated], name="generated", mode="markers",
                       marker={"symbol": "square-open", "size": 8, "color": PALETTE["draft"], "line_width": 2})
    figure.add_scatter(x=turns, y=[int(n) for n in asked], name="asked for", mode="lines",
                       line={"color": PALETTE["target"], "width": 2, "shape": "hvh"})
    if oracle:
        figure.add_scatter(x=turns, y=[int(n) for n in oracle], name="best there", mode="markers",
                           marker={"symbol": "diamond", "size": 7, "color": PALETTE["extra"]})
    return figure.update_yaxes(rangemode="tozero")
