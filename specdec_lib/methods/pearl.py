"""PEARL: draft and verify at the same time, with the first new token tested before its draft is finished.

Source: Liu et al. 2024 (PEARL, arXiv 2408.11850). A draft model works while the target verifies; the draft length is
the ratio of their speeds, so that neither waits. `pre=False` and `post=False` are our reading of the paper's two
ablations; with both off this is serial speculation. `drafter` may be any part that reads no hidden states of the
target, which has not computed them there: the part `suffix-automaton` costs nothing. `workers` says where the drafter
runs (`schedules.workers.KINDS`). Greedy tokens do not depend on it, and drawn ones do not at a fixed `depth`; a
measured `depth` follows the times, and drawn tokens are then others of the same distribution.
"""

from __future__ import annotations

from dataclasses import replace

from specdec_lib.cards import Card, Kit, naming
from specdec_lib.schedules.overlap import Overlap
from specdec_lib.schedules.workers import Workers
from specdec_lib.types import Method


def make(kit: Kit, depth: int | None = None, pre: bool = True, post: bool = True, drafter: str = "draft-model",
         workers: str | None = None) -> Method:
    """`depth` tokens a round; None takes the measured speed ratio."""
    when = kit.part("speed-ratio") if depth is None else kit.part("fixed", depth=depth)
    what = replace(kit, beside=True).part(drafter)
    return Method(when, what, kit.part("rejection"), Overlap(Workers(workers or kit.workers), pre, post))


CARD = Card("pearl", idea="draft while the target verifies; test the first new token early", source="Liu et al. 2024",
            make=make, parts=("speed-ratio", "draft-model", "rejection"), named=naming(drafter="what"),
            notebook="51_pearl", parallel=True, ahead=True)
