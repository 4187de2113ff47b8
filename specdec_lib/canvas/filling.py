"""Filling: forward after forward, the best-ranked choices are written, and what is written stays.

One function for all rules that differ only in how many choices a forward writes (`take`): one (stepwise), k, those
above a threshold, or those of the factor rule. At a temperature above 0 every open position draws a token, and its
confidence is the raw probability of the drawn token (LLaDA).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from specdec_lib.canvas.forecast import RowForecast
from specdec_lib.canvas.order import Order, by_confidence, by_score, make_order, ranked, tied
from specdec_lib.canvas.types import Canvas, CanvasModel, CanvasRound, CanvasSession, Choice
from specdec_lib.sampling import Sampling
from specdec_lib.types import RandomNumbers, Refusal

Take = Callable[[tuple[Choice, ...], CanvasSession], int]      # choices, best first, and session -> how many to write
Change = Callable[[RowForecast], RowForecast]                  # such as the damping of end tokens


def unchanged(row: RowForecast) -> RowForecast:
    return row


def check_block(block: int) -> int:
    """The length of a block; Refusal for a negative one."""
    if block < 0:
        raise Refusal(f"a block has at least 1 position, 0 leaves the canvas's own; got {block}")
    return block


def check_temperature(temperature: float) -> float:
    """The temperature; Refusal for one that is negative or out of range."""
    return Sampling(temperature).temperature


def check_theta(theta: float) -> float:
    """A confidence threshold; Refusal for one that is no probability above 0."""
    if not 0 < theta <= 1:
        raise Refusal(f"theta is a probability above 0, got {theta}")
    return theta


def reaching(theta: float) -> Take:
    """Writes all choices with a confidence of at least `theta`, and never none."""
    return lambda choices, now: sum(choice.confidence >= theta for choice in choices)


def with_block(session: CanvasSession, block: int) -> CanvasSession:
    """The session with semi-autoregressive blocks of this length; 0 leaves those of the canvas."""
    if not block:
        return session
    return replace(session, canvas=replace(session.canvas, block=block), start=replace(session.start, block=block))


def fill(session: CanvasSession, model: CanvasModel, take: Take, dice: RandomNumbers, order: str = "confidence",
         temperature: float = 0.0, change: Change = unchanged) -> Iterator[CanvasSession]:
    """Yields the session after every forward until no mask is left; each forward writes at least one token."""
    scores, forward = make_order(order, session.canvas, dice), 0
    while not session.canvas.full:
        row = change(model((session.canvas,))[0])
        choices = (ranked(row, session.canvas, scores) if temperature == 0 else
                   sampled(row, session.canvas, scores, temperature, dice.fork("fill", forward)))
        written = choices[:max(1, take(choices, session))]
        ties = sum(tied(row, session.canvas, scores, choice) for choice in written[-1:]) if temperature == 0 else 0
        session, forward = session.after(round_of(written, ties=ties)), forward + 1
        yield session


def sampled(row: RowForecast, canvas: Canvas, order: Order, temperature: float,
            dice: RandomNumbers) -> tuple[Choice, ...]:
    """A drawn token for every open position; the confidence order ranks by the drawn token's own raw probability."""
    out = []
    for position in canvas.open:
        token = row.distribution(position, temperature).draw(dice.at(position))
        confidence = row.confidence_of(position, token)
        out.append(Choice(position, token, confidence,
                          confidence if order is by_confidence else order(row, position)))
    return by_score(out)


def round_of(choices: tuple[Choice, ...], **more) -> CanvasRound:
    """The round that writes these choices."""
    return CanvasRound(tuple(choice.position for choice in choices), tuple(choice.token for choice in choices),
                       tuple(choice.confidence for choice in choices), **more)


def within_forwards(forwards: int, session: CanvasSession, since: int) -> int:
    """How many choices to write so that `forwards` forwards, counted from round `since`, fill the canvas.

    LLaDA: forwards are divided among blocks and masks among a block's forwards, the remainder first. Where there are
    fewer forwards than blocks, every block takes one. The forwards that the open block has had belong to its share.
    """
    canvas, rounds = session.canvas, session.rounds[since:]
    inside = frozenset(canvas.open_block)
    spent = sum(round.forwards for round in rounds if not inside.isdisjoint(round.positions))
    left = forwards - sum(round.forwards for round in rounds)
    blocks = len({canvas.area.index(position) // canvas.block for position in canvas.masked}) if canvas.block else 1
    return -(-len(canvas.open) // max(1, (left + spent) // blocks - spent))
