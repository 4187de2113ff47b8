"""Positions to copy from: where each lies in the text, its score, and which of them are offered."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, SYMBOL, canvas, literal, numbers, same_length


def candidates(starts: Sequence[int], scores: Sequence[float], offered: Sequence[bool], least: float | None = None,
               words: Sequence[str] | None = None, title: str | None = None) -> go.Figure:
    """Every candidate by its position in the text and its score; a rule drops candidates that score below `least`.

    `words` are the text that each candidate would copy; they appear on hover.
    """
    same_length(starts=starts, scores=scores, offered=offered, words=words)
    chosen = sum(map(bool, offered))
    figure = canvas(title or f"{chosen} of {len(starts)} candidates are offered", "position in the text (tokens)",
                    "score of the candidate")
    for name, role, wanted in (("offered", "accepted", True), ("not offered", "rejected", False)):
        which = [i for i, one in enumerate(offered) if bool(one) == wanted]
        figure.add_scatter(x=[int(starts[i]) for i in which], y=numbers([scores[i] for i in which]), name=name,
                           mode="markers", text=[literal(words[i]) for i in which] if words else None,
                           marker={"symbol": SYMBOL[role], "color": PALETTE[role], "size": 12})
    if least:                                      # at 0 nothing is dropped
        figure.add_hline(y=least, line={"color": PALETTE["target"], "dash": "dash"},
                         annotation_text=f"dropped below {least:g}", annotation_position="bottom left")
    return figure.update_yaxes(range=[-0.05, 1.05]).update_layout(showlegend=True)
