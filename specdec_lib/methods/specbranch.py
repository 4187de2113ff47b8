"""SpecBranch: PEARL that hedges an uncertain position with branches, and submits nothing beyond the next one.

Source: SpecBranch (arXiv 2506.01979). While the target verifies the pending tokens, the worker drafts several first
tokens where it is uncertain, each continued; the target's own token selects one of them. What stays pending is cut at
the next uncertain position (`schedules.cut`), and the next draft branches there. `most=1` switches the branches off,
`epsilon=0` the cut; with both it is PEARL. The paper's trained predictor (H-RAD) is not part of it.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.schedules.cut import CutAtBranchPoint
from specdec_lib.schedules.overlap import Overlap
from specdec_lib.schedules.workers import Workers
from specdec_lib.types import Method


def make(kit: Kit, depth: int | None = None, most: int = 3, epsilon: float = 0.3, workers: str | None = None) -> Method:
    """`depth` tokens a branch, None takes the measured speed ratio; at most `most` branches."""
    when = kit.part("branch-point", depth=depth, width=most, epsilon=epsilon)
    schedule = Overlap(Workers(workers or kit.workers), keep=CutAtBranchPoint(epsilon))
    return Method(when, kit.part("branches", most=most), kit.part("rejection"), schedule)


CARD = Card("specbranch", idea="branches where the drafter is uncertain, drafted while the target verifies",
            source="SpecBranch, arXiv 2506.01979", make=make, parts=("branch-point", "branches", "rejection"),
            notebook="52_specbranch", parallel=True)
