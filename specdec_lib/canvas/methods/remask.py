"""Remasking by low confidence: as Tolerator, but the positions that are hidden are the least confident ones.

The contrast to random shares: RCR and ReMDM hide tokens by their confidence. The same two stages, the same annealed
shares and the same forwards as `tolerator`; only the choice of the hidden positions differs: those whose token had the
lowest probability when it was last written. Without temperature it may hide and restore the same positions until ten
equal results in a row lock them.
"""

from __future__ import annotations

from specdec_lib.canvas.refining import Refinement, hide_least_confident
from specdec_lib.canvas.two_stages import FillThenRefine
from specdec_lib.canvas.types import CanvasModel
from specdec_lib.cards import Card


def make(model: CanvasModel, forwards: int = 32, fill: float = 0.5, start: float = 0.8, finish: float = 0.4,
         temperature: float = 0.0, fill_temperature: float = 0.0, damping: float = 1.2) -> FillThenRefine:
    """`start` and `finish` are the shares of hidden positions."""
    rule = Refinement(hide_least_confident, start, finish, temperature)
    return FillThenRefine(forwards, fill, fill_temperature, damping, rule)


CARD = Card("remask", idea="fill in few forwards, then hide the least confident share", make=make, lossless=False,
            source="ReMDM, arXiv 2503.00307", notebook="63_tolerator")
