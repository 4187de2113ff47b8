"""Along one output: nodes kept in each round, the source of each token, signals of the drafter and match lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE, canvas, fill, literals, numbers, same_length, series
from specdec_lib.figures.theory import WHOLE

SHORT = 24                                         # words of a text that stand on the axis


def rounds(drafted: Sequence[int], accepted: Sequence[int], title: str | None = None,
           top: float | None = None, last: int | None = None) -> go.Figure:
    """Accepted and rejected draft nodes of every round, stacked.

    `top` fixes the axis of nodes under a slider, `last` that of rounds.
    """
    same_length(drafted=drafted, accepted=accepted)
    share = f"{sum(accepted)} of {sum(drafted)} drafted tokens were accepted in {len(drafted)} rounds"
    figure = canvas(title or share, "round", "draft nodes")
    turns = list(range(1, len(drafted) + 1))
    wasted = [int(n) - int(kept) for n, kept in zip(drafted, accepted, strict=True)]
    figure.add_bar(x=turns, y=[int(kept) for kept in accepted], name="accepted", marker=fill("accepted"))
    figure.add_bar(x=turns, y=wasted, name="rejected", marker=fill("rejected"))
    highest = max(drafted, default=0) if top is None else top
    if highest <= WHOLE:
        figure.update_yaxes(dtick=1)
    if top is not None:
        figure.update_yaxes(range=[0, top + 0.5])
    if last is not None:
        figure.update_xaxes(range=[0.4, last + 0.6])
    return figure.update_layout(barmode="stack")


def sources(by_token: Sequence[str], words: Sequence[str] | None = None, title: str | None = None,
            order: Sequence[str] = ()) -> go.Figure:
    """The source of each emitted token, a row for each source; "" is the target itself.

    Sources in `order` have the first rows and keep their looks under a slider, whichever drafted more.
    """
    same_length(by_token=by_token, words=words)
    named, known = [source or "target" for source in by_token], literals(words)
    counts = Counter(named)
    ranked = [name for name, _ in counts.most_common() if name != "target"]
    rows = [*order, *(name for name in ranked if name not in order)] + ["target"] * ("target" in counts)
    drafted = len(named) - counts["target"]
    said = f"{drafted} of {len(named)} tokens came from a draft" + (f", most from {ranked[0]}" if drafted else "")
    figure = canvas(title or said, "token of the output", "")
    for place, name in enumerate(rows):
        where = [i for i, source in enumerate(named) if source == name]
        look = series(place)
        colour = PALETTE["target"] if name == "target" else look["colour"]
        figure.add_scatter(x=[i + 1 for i in where], y=[name] * len(where), mode="markers", name=name,
                           text=[known[i] for i in where] if known else None,
                           marker={"color": colour, "symbol": look["symbol"], "size": 10, "opacity": 0.9})
    figure.update_layout(showlegend=False, height=170 + 40 * len(rows), yaxis={"autorange": "reversed"})
    fixed = {"autorange": False, "range": [len(rows) - 0.5, -0.5], "categoryorder": "array", "categoryarray": rows}
    return figure.update_yaxes(**fixed) if order else figure


def signal(values: Sequence[float | None], name: str = "entropy", unit: str = "nats", threshold: float | None = None,
           stops: Sequence[int] = (), words: Sequence[str] | None = None, title: str | None = None) -> go.Figure:
    """A signal along the output (entropy, confidence), its threshold, and a cross where drafting stopped.

    `stops` are positions in `values`, counted from 0.
    """
    same_length(values=values, words=words)
    wrong = [place for place in stops if not 0 <= place < len(values)]
    if wrong:
        raise ValueError(f"stops are positions in the {len(values)} values, got {wrong[0]}")
    said = f"Drafting stops at {len(stops)} of {len(values)} tokens" if stops else f"The {name} along the output"
    figure = canvas(title or said, "token of the output", f"{name} ({unit})" if unit else name)
    figure.add_scatter(x=list(range(1, len(values) + 1)), y=numbers(values), mode="lines", name=name,
                       text=literals(words), line={"color": PALETTE["draft"], "width": 2})
    if stops:
        figure.add_scatter(x=[place + 1 for place in stops], y=numbers([values[place] for place in stops]),
                           mode="markers", name="stop",
                           marker={"symbol": "x", "size": 10, "color": PALETTE["rejected"]})
    if threshold is not None:
        figure.add_hline(y=threshold, line={"color": PALETTE["target"], "dash": "dash"}, showlegend=True,
                         name=f"threshold {threshold:g}")
    return figure.update_layout(showlegend=True)


def match_lengths(lengths: Sequence[int], shortest: int | None = None, words: Sequence[str] | None = None,
                  title: str | None = None) -> go.Figure:
    """Length of the longest suffix that occurred earlier in the text, by position; `shortest` marks a rule's limit.

    The words of a short text stand on the axis, those of a longer one appear on hover.
    """
    same_length(lengths=lengths, words=words)
    longest = max(lengths, default=0)
    figure = canvas(title or f"The longest repeated suffix has {longest} tokens", "token of the text",
                    "match length (tokens)")
    figure.add_bar(x=list(range(1, len(lengths) + 1)), y=[int(value) for value in lengths], name="match length",
                   text=literals(words), textposition="none", marker=fill("draft"), showlegend=False)
    if shortest is not None:
        figure.add_hline(y=shortest, line={"color": PALETTE["target"], "dash": "dash"}, showlegend=True,
                         name=f"draft from {shortest}")
    if words and len(words) <= SHORT:
        figure.update_xaxes(tickvals=list(range(1, len(words) + 1)), ticktext=literals(words))
    return figure.update_layout(showlegend=shortest is not None)
