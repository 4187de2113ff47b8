"""The loop of a canvas: a method's sessions, one after every round, each round with the seconds that it took.

Knows no rule and no model. A method is a function from session, model and random numbers to an iterator of sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

from specdec_lib.canvas.types import Canvas, CanvasMethod, CanvasModel, CanvasSession
from specdec_lib.types import NO_DICE, RandomNumbers, Refusal


def decode(canvas: Canvas, model: CanvasModel, method: CanvasMethod,
           dice: RandomNumbers = NO_DICE) -> Iterator[CanvasSession]:
    """Yields the session after every round until the canvas is full; Refusal for a mask that is not the model's.

    Seconds are wall-clock time between rounds, forwards and rule together.
    """
    if canvas.mask != model.mask:
        raise Refusal(f"the canvas is masked with token {canvas.mask}, the model's mask is {model.mask}")
    start, rounds = CanvasSession.begin(canvas), ()
    began = perf_counter()
    for session in method(start, model, dice):
        ended = perf_counter()
        new = session.rounds[len(rounds):]
        rounds += tuple(replace(round, seconds=(ended - began) / len(new)) for round in new)
        yield replace(session, rounds=rounds)
        began = perf_counter()


def finished(canvas: Canvas, model: CanvasModel, method: CanvasMethod, dice: RandomNumbers = NO_DICE) -> CanvasSession:
    """The last session of a decode."""
    session = CanvasSession.begin(canvas)
    for now in decode(canvas, model, method, dice):
        session = now
    return session
