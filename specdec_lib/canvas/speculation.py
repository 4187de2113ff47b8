"""Self-speculative decoding of a canvas: guessed canvases are rows of the same batch that decides the next choice.

Source: SSD (Gao et al. 2025, arXiv 2510.04147). Stepwise decoding makes one choice S(x) = (position, token) per
forward. SSD runs x and guesses of its next canvases as rows of one forward, and follows S from row to row: S(x) leads
to the canvas x + S(x); if that is a row, its forecast is there already and S is applied to it, and so on. Every choice
that is written was made by S on the very canvas that stepwise decoding would have had, so both position and token are
checked, and the canvas after a round equals stepwise decoding's after as many steps, by induction. No distribution is
involved: the promise is for greedy decoding, relative to stepwise decoding with the same order and blocks. The last
row reached gives the guesses of the next round, so drafting costs no forward.

Cost: one forward of at most `rows` rows per round, which writes between 1 and `rows` tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specdec_lib.canvas.draft_rows import Shape, draft_rows
from specdec_lib.canvas.filling import round_of
from specdec_lib.canvas.forecast import RowForecast
from specdec_lib.canvas.order import Order, make_order, stepwise_choice, tied
from specdec_lib.canvas.types import Canvas, CanvasModel, CanvasSession, Choice
from specdec_lib.types import RandomNumbers


def speculate_canvas(session: CanvasSession, model: CanvasModel, rows: int, shape: Shape, order: str,
                     dice: RandomNumbers) -> Iterator[CanvasSession]:
    """Yields the session after every batched forward until no mask is left."""
    scores, last = make_order(order, session.canvas, dice), None
    while not session.canvas.full:
        drafted = (session.canvas,) if last is None else draft_rows(session.canvas, last, scores, shape, rows)
        found = dict(zip((canvas.tokens for canvas in drafted), model(drafted), strict=True))
        choices, ties, last = follow(session.canvas, found, scores)
        session = session.after(round_of(choices, rows=len(drafted), drafted=len(drafted) - 1, ties=ties))
        yield session


def follow(canvas: Canvas, found: Mapping[tuple[int, ...], RowForecast],
           order: Order) -> tuple[tuple[Choice, ...], int, RowForecast]:
    """Stepwise decoding's choices for as long as its canvas is among the rows, their ties, and the last row used."""
    choices, ties, row = [], 0, found[canvas.tokens]
    while not canvas.full and canvas.tokens in found:
        row = found[canvas.tokens]
        choice = stepwise_choice(row, canvas, order)
        ties += tied(row, canvas, order, choice)
        canvas = canvas.fill((choice.position,), (choice.token,))
        choices.append(choice)
    return tuple(choices), ties, row
