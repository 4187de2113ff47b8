"""One template and one palette for every figure, strip and tree of the workbook.

The colours are those of Okabe and Ito (2008): readers with any common colour blindness can distinguish them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, cast

import plotly.graph_objects as go

from specdec_lib.lazy import import_jsonschema

import_jsonschema()                                # plotly imports it to show a first figure
PALETTE = {
    "accepted": "#009E73",
    "rejected": "#D55E00",
    "extra": "#0072B2",                            # the verdict's own token: correction or bonus
    "exchanged": "#CC79A7",                        # another token than the target's own that a lossy rule accepts
    "draft": "#E69F00",
    "target": "#4D4D4D",
    "quiet": "#B3B3B3",                            # edges, grids, background
}
PATTERN = {"accepted": "", "rejected": "/", "extra": ".", "draft": "\\", "target": ""}
SYMBOL = {"accepted": "circle", "rejected": "x", "extra": "diamond", "draft": "square", "target": "circle-open"}

SERIES = (                                         # several methods in one figure: colour, dash, symbol, pattern
    ("#0072B2", "solid", "circle", ""),
    ("#D55E00", "dash", "square", "/"),
    ("#009E73", "dot", "diamond", "x"),
    ("#CC79A7", "dashdot", "triangle-up", "."),
    ("#E69F00", "longdash", "cross", "\\"),
    ("#56B4E9", "longdashdot", "star", "-"),
    ("#4D4D4D", "solid", "triangle-down", "+"),
    ("#8C6D00", "dash", "hexagon", "|"),
    ("#0072B2", "dashdot", "circle-open", "\\"),
    ("#D55E00", "dot", "square-open", "x"),
    ("#009E73", "longdash", "diamond-open", "/"),
    ("#CC79A7", "solid", "triangle-up-open", "-"),
)

SHIFT = 10                                         # from the 13th method on: places from a colour to its marks

INK = "#222222"                                    # of letters and of intervals
DETAIL = "detail"                                  # name of a note that pages leave out where a figure is narrow
LINE = 20                                          # pixels of a title's or a legend's line
PLOT, LETTER, SAMPLE = 760, 7.2, 48                # pixels: width of a plot, a letter of a legend, its line and mark
TEMPLATE = go.layout.Template(layout={
    "font": {"family": "DejaVu Sans, Verdana, Arial, sans-serif", "size": 13, "color": INK},
    "title": {"font": {"size": 16}, "x": 0.02, "xanchor": "left", "y": 1, "yanchor": "top",
              "pad": {"t": 15}},
    "paper_bgcolor": "white", "plot_bgcolor": "white", "height": 380,
    "margin": {"l": 70, "r": 30, "t": 80, "b": 66},
    "xaxis": {"showgrid": False, "zeroline": False, "hoverformat": ",.4~r", "linecolor": "#888888",
              "ticks": "outside", "automargin": True, "title": {"standoff": 8}},
    "yaxis": {"gridcolor": "#E6E6E6", "zeroline": False, "hoverformat": ",.4~r", "linecolor": "#888888",
              "ticks": "outside", "automargin": True, "title": {"standoff": 8}},
    "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "traceorder": "normal",
               "font": {"size": 12}},
    "hoverlabel": {"font": {"size": 12}}, "bargap": 0.25,
})


def canvas(title: str, x: str, y: str) -> go.Figure:
    """An empty figure with a title and named axes; a title of more than two lines makes it taller.

    Made of one dictionary: each further object or update has Plotly check the whole template again.
    """
    said, layout = wrapped(title), cast(Any, TEMPLATE.layout)
    more = LINE * max(0, said.count("<br>") - 1)
    taller = {"height": layout.height + more, "margin": {"t": layout.margin.t + more}} if more else {}
    return go.Figure({"layout": {"template": TEMPLATE, "title": {"text": said}, "xaxis": {"title": {"text": x}},
                                 "yaxis": {"title": {"text": wrapped(y, 36)}}, **taller}})


def with_legend(figure: go.Figure) -> go.Figure:
    """The figure with its legend, and taller where the rows of the legend would reach into the title.

    Rows are estimated as Plotly draws them on a page: side by side if all fit, or else in columns of one width.
    """
    traces = cast(tuple[Any, ...], figure.data)
    names = [str(trace.name) for trace in traces if trace.name and trace.showlegend is not False]
    wide = [LETTER * len(name) + SAMPLE for name in names]
    columns = max(1, int(PLOT // max(wide, default=PLOT)))
    rows = 1 if sum(wide) <= PLOT else -(-len(wide) // columns)
    margin, layout = cast(Any, TEMPLATE.layout).margin, cast(Any, figure.layout)
    lines = str(layout.title.text or "").count("<br>") + 1
    now = layout.margin.t or margin.t
    top = max(now, margin.t + LINE * max(0, lines + rows - 3))
    high = (layout.height or cast(Any, TEMPLATE.layout).height) + top - now
    return figure.update_layout(showlegend=True, height=high, margin={"t": top})


def wrapped(title: str, width: int = 66) -> str:
    """The title in as few lines of at most `width` letters as it takes, about equally long; hyphens break nothing."""
    lines = textwrap.wrap(title, width, break_on_hyphens=False)
    least = max(map(len, title.split()), default=1)
    even = next((short for at in range(max(least, len(title) // max(1, len(lines))), width)
                 if len(short := textwrap.wrap(title, at, break_on_hyphens=False)) == len(lines)), lines)
    return "<br>".join(even) or title


def series(place: int) -> dict[str, str]:
    """Colour, dash, symbol and pattern of the n-th method of a figure; of the first 24 no two look alike."""
    turn, at = divmod(place, len(SERIES))
    colour = SERIES[at][0]
    _, dash, symbol, pattern = SERIES[(at + SHIFT * turn) % len(SERIES)]
    return {"colour": colour, "dash": dash, "symbol": symbol, "pattern": pattern}


def fill(role: str) -> dict:
    """The marker of a bar of this role: its colour, and a pattern that distinguishes it in grey as well."""
    return hatched(PALETTE[role], PATTERN[role])


def hatched(colour: str, shape: str) -> dict:
    """A bar's marker in this colour with white hatching; shape "" is plain."""
    return {"color": colour, "pattern": {"shape": shape, "fillmode": "overlay", "fgcolor": "white", "size": 7}}


def whiskers(values: Sequence[float | None], intervals: Sequence[Sequence[float] | None], colour: str, **look) -> dict:
    """Error bars from each value to the ends of its interval; none where there is no interval."""
    if not any(intervals):
        return {"visible": False}
    known = [(float(bound[1] - value), float(value - bound[0])) if value is not None and bound else (None, None)
             for value, bound in zip(values, intervals, strict=True)]
    return {"type": "data", "symmetric": False, "array": [high for high, _ in known],
            "arrayminus": [low for _, low in known], "color": colour, **look}


def literal(word: str) -> str:
    """The word as Plotly draws it letter by letter: `</s>`, `<a href=...>` and `&lt;` would be markup."""
    return word.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "<br>")


def literals(words: Sequence[str] | None) -> list[str] | None:
    """All words so; None without any."""
    return [literal(word) for word in words] if words else None


def hover(category: str = "x", more: str = "") -> str:
    """What a bar says: its category, on the axis `x` or `y`, and its value; the series in the box beside it."""
    return f"%{{{category}}}: %{{{'y' if category == 'x' else 'x'}}}{more}<extra>%{{fullData.name}}</extra>"


def contrast(one: str, other: str) -> float:
    """The contrast of two colours #rrggbb as WCAG 2 defines it, from 1 to 21; small text needs 4.5."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def readable_on(colour: str) -> str:
    """Black or white, whichever is easier to read on this colour."""
    return max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, colour))


def _luminance(colour: str) -> float:
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def same_length(**columns: Sequence | None) -> None:
    """Raises ValueError unless all columns given have one length, naming them."""
    lengths = {name: len(column) for name, column in columns.items() if column is not None}
    if len(set(lengths.values())) > 1:
        raise ValueError("these must have one length: " + ", ".join(f"{k} {v}" for k, v in lengths.items()))


def known_cells(rows: Sequence, columns: Sequence, values: Sequence[Sequence[float | None]]
                ) -> list[tuple[float, int, int]]:
    """(value, column, row) of each cell of a grid that is not None; ValueError without one, or for another size."""
    same_length(rows=rows, values=values)
    for row in values:
        same_length(columns=columns, row=row)
    known = [(float(value), j, i) for i, row in enumerate(values) for j, value in enumerate(row) if value is not None]
    if not known:
        raise ValueError("a grid needs one known value at least")
    return known


def numbers(values: Sequence) -> list:
    """Plain Python floats, None kept: Plotly encodes arrays as binary, which some viewers show as empty plots."""
    return [None if value is None else float(value) for value in values]
