"""Tolerator: fill the canvas in few forwards, then hide random shares of it in turn and decide them again.

Source: Tolerator (arXiv 2510.05090). The first stage fills in the share `fill` of the forwards, with damped end tokens;
the second hides an annealed share of random positions at every forward, draws the `update` share with the least
probable old token again, and leaves a position alone after `lock` equal results in a row. The paper draws at 0.5 and
0.3 (`temperature=0.3, fill_temperature=0.5`); here both are 0 unless asked for, because a board has one answer. Cost:
`forwards` forwards. Those that the first stage does not need go to the second; fewer are taken where all is locked.
"""

from __future__ import annotations

from specdec_lib.canvas.refining import Refinement, hide_random
from specdec_lib.canvas.two_stages import FillThenRefine
from specdec_lib.canvas.types import CanvasModel
from specdec_lib.cards import Card


def make(model: CanvasModel, forwards: int = 32, fill: float = 0.5, start: float = 0.8, finish: float = 0.4,
         update: float = 1.0, lock: int = 10, temperature: float = 0.0, fill_temperature: float = 0.0,
         damping: float = 1.2) -> FillThenRefine:
    """`start` and `finish` are the shares of hidden positions (gamma); `update` is the paper's update rate."""
    rule = Refinement(hide_random, start, finish, temperature, update, lock)
    return FillThenRefine(forwards, fill, fill_temperature, damping, rule)


CARD = Card("tolerator", idea="fill in few forwards, then cross-validate random shares", make=make, lossless=False,
            source="Tolerator, arXiv 2510.05090", notebook="63_tolerator")
