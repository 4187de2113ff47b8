"""Draft lengths of each round: tokens allowed by the rule, tokens generated, and tokens accepted by the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, canvas, fill, same_length, series


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
                       cliponaxis=False,             # a mark at 0 is drawn whole
                       marker={"symbol": "square-open", "size": 8, "color": PALETTE["draft"], "line_width": 2})
    figure.add_scatter(x=turns, y=[int(n) for n in asked], name="asked for", mode="lines",
                       line={"color": PALETTE["target"], "width": 2, "shape": "hvh"})
    if oracle:
        figure.add_scatter(x=turns, y=[int(n) for n in oracle], name="best there", mode="markers",
                           cliponaxis=False, marker={"symbol": "diamond", "size": 7, "color": PALETTE["extra"]})
    return figure.update_yaxes(rangemode="tozero")


def lengths_by_rule(asked: Mapping[str, Sequence[int]], accepted: Mapping[str, Sequence[int]], top: int,
                    title: str | None = None) -> go.Figure:
    """Tokens asked for in each round by several rules of length, as steps, and those accepted, as marks.

    `top` is the largest length that the rules allow; the axis always reaches it.
    """
    said = "; ".join(f"{rule}: {sum(values) / len(values):.1f} tokens in {len(values)} rounds"
                     for rule, values in asked.items() if values)
    figure = canvas(title or f"Asked for on average, {said}", "round", "tokens")
    for place, (rule, values) in enumerate(asked.items()):
        same_length(asked=values, accepted=accepted[rule])
        look, turns = series(place), list(range(1, len(values) + 1))
        figure.add_scatter(x=turns, y=[int(n) for n in values], name=f"{rule}, asked for", mode="lines",
                           line={"color": look["colour"], "dash": look["dash"], "shape": "hvh", "width": 2})
        figure.add_scatter(x=turns, y=[int(n) for n in accepted[rule]], name=f"{rule}, accepted", mode="markers",
                           marker={"color": look["colour"], "symbol": look["symbol"], "size": 6})
    return figure.update_yaxes(range=[-.3, top + 1])
