"""A Sudoku board: what stands in each cell, how confident the model is, in which order cells were filled.

Letters stay readable on every shade, and nothing depends on colour alone: the small number is the order of filling, a
revised cell has a frame, a wrong one a cross in its corner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import INK, PALETTE, TEMPLATE, same_length, wrapped

SIDE = 9
SHADES = [[0.0, "#FFFFFF"], [1.0, "#7FBCE6"]]      # black letters have a contrast of at least 10 on all of them
CELL = 44                                          # pixels


def board(digits: Sequence[int], clues: Sequence[int], confidence: Sequence[float | None] | None = None,
          order: Mapping[int, int] | None = None, revised: Collection[int] = (), wrong: Collection[int] = (),
          title: str | None = None) -> go.Figure:
    """A Sudoku board [81], 0 a blank: clues bold on grey, other cells shaded by `confidence` (0 to 1, None unshaded).

    `order[cell]` is the step that filled the cell; `revised` cells were changed after they had been filled, `wrong`
    ones differ from the solution. ValueError for another number of cells.
    """
    same_length(digits=digits, clues=clues, confidence=confidence)
    if len(digits) != SIDE * SIDE:
        raise ValueError(f"a board has 81 cells, got {len(digits)}")
    given = [digit != 0 for digit in clues]
    words = [str(digit) if digit else "" for digit in digits]
    figure = grid(words, SIDE, confidence, order, given, revised, wrong, title or said(digits, given, revised, wrong))
    lines = list[dict]()
    for line in range(SIDE + 1):
        style = {"color": INK, "width": 2.5 if line % 3 == 0 else 0.6}
        for ends in ({"x0": line - .5, "x1": line - .5, "y0": -.5, "y1": SIDE - .5},
                     {"y0": line - .5, "y1": line - .5, "x0": -.5, "x1": SIDE - .5}):
            lines.append({"type": "line", "line": style, **ends})
    return figure.update_layout(shapes=lines)      # at once: one after the other, each would copy those before it


def grid(words: Sequence[str], columns: int, confidence: Sequence[float | None] | None, order: Mapping[int, int] | None,
         given: Sequence[bool], revised: Collection[int], wrong: Collection[int], title: str) -> go.Figure:
    """Words in lines of so many columns, the first line on top; "" is an open cell."""
    same_length(words=words, given=given, confidence=confidence)
    lines, order = -(-len(words) // columns), order or {}
    shade = [None if confidence is None or grey else confidence[at] for at, grey in enumerate(given)]
    where = [(at % columns, at // columns) for at in range(len(words))]
    hints = [hint(words[at], given[at], shade[at], order.get(at), at in revised, at in wrong)
             for at in range(len(words))]
    figure = go.Figure({"layout": {"template": TEMPLATE}})
    figure.add_heatmap(z=in_lines([0.0 if grey else None for grey in given], columns), colorscale=[[0, "#DDDDDD"],
                       [1, "#DDDDDD"]], showscale=False, hoverinfo="skip")
    figure.add_heatmap(z=in_lines(shade, columns), zmin=0, zmax=1, colorscale=SHADES, hoverinfo="skip",
                       showscale=any(value is not None for value in shade), colorbar={"title": "confidence",
                       "thickness": 12, "len": 0.8})
    figure.add_scatter(x=[x for x, _ in where], y=[y for _, y in where], mode="text", hovertext=hints, hoverinfo="text",
                       text=[f"<b>{word}</b>" if grey else word for word, grey in zip(words, given, strict=True)],
                       textfont={"color": INK, "size": 18}, showlegend=False)
    if order:
        figure.add_scatter(x=[where[at][0] + .3 for at in order], y=[where[at][1] - .32 for at in order], mode="text",
                           text=[str(step) for step in order.values()], textfont={"color": INK, "size": 9},
                           hoverinfo="skip", name="order of filling", showlegend=False)
    marked(figure, "revised", where, revised, "square-open", PALETTE["draft"])
    marked(figure, "wrong", [(x - .3, y + .3) for x, y in where], wrong, "x-thin-open", PALETTE["rejected"], 12)
    caption = "grey: given" + ("; small number: order of filling" if order else "")
    figure.update_xaxes(showticklabels=False, showgrid=False, zeroline=False, ticks="", range=[-.55, columns - .45],
                        constrain="domain", title={"text": caption, "font": {"size": 12}})
    figure.update_yaxes(visible=False, range=[lines - .45, -.55], scaleanchor="x")
    height = 110 + CELL * lines
    return figure.update_layout(title=wrapped(title), height=height, margin={"t": 70, "b": 40, "l": 20, "r": 20})


def marked(figure: go.Figure, name: str, where: Sequence[tuple[float, float]], cells: Collection[int],
           symbol: str, colour: str, size: int = 30) -> None:
    """Adds a symbol at these cells, named in the legend; nothing where there are none."""
    if cells:
        figure.add_scatter(x=[where[at][0] for at in sorted(cells)], y=[where[at][1] for at in sorted(cells)],
                           mode="markers", name=name, hoverinfo="skip",
                           marker={"symbol": symbol, "size": size, "color": colour, "line": {"width": 3,
                                                                                             "color": colour}})


def hint(word: str, given: bool, confidence: float | None, step: int | None, revised: bool, wrong: bool) -> str:
    """What a cell says when it is pointed at."""
    parts = ["a clue" if given else "", "open" if not word else "", f"confidence {confidence:.3f}"
             if confidence is not None else "", f"step {step}" if step is not None else "",
             "revised" if revised else "", "wrong" if wrong else ""]
    return ", ".join([word, *filter(None, parts)] if word else list(filter(None, parts)))


def in_lines(values: Sequence[float | None], columns: int) -> list[list[float | None]]:
    """The values in lines of so many columns, the last one filled up with None."""
    padded = [None if value is None else round(float(value), 4) for value in values]
    padded += [None] * (-len(padded) % columns)
    return [padded[start:start + columns] for start in range(0, len(padded), columns)]


def said(digits: Sequence[int], given: Sequence[bool], revised: Collection[int], wrong: Collection[int]) -> str:
    """The takeaway of a board: how many blanks are filled, how many of them wrong or revised."""
    blanks = [at for at, clue in enumerate(given) if not clue]
    filled = sum(digits[at] != 0 for at in blanks)
    more = [f"{len(cells)} {name}" for name, cells in (("revised", revised), ("wrong", wrong)) if cells]
    return ", ".join([f"{filled} of {len(blanks)} blanks are filled", *more])
