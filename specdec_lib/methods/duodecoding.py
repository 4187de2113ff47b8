"""DuoDecoding: a drafter beside the target spends its token budget on one long sequence or on several short ones.

Source: Lv et al. 2025 (DuoDecoding, arXiv 2503.00784), with the drafter on the CPU and the target on a GPU. The budget
is the ratio of their speeds, so that neither waits; the first two drafts have one token, since nothing is timed yet.
Several sequences compete for the next position, and the target's token selects one. `most=1` switches that off. The
released code is greedy; here all drafted tokens are deterministic proposals, so the rule is lossless when sampling as
well. `workers` says where the drafter runs.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.schedules.overlap import Overlap
from specdec_lib.schedules.workers import Workers
from specdec_lib.types import Method


def make(kit: Kit, depth: int | None = None, most: int = 8, workers: str | None = None) -> Method:
    """`depth` tokens a round in all sequences, None takes the measured speed ratio; at most `most` sequences."""
    when = kit.part("speed-ratio", first=1) if depth is None else kit.part("fixed", depth=depth)
    return Method(when, kit.part("multi-sequence", most=most), kit.part("rejection"),
                  Overlap(Workers(workers or kit.workers)))


CARD = Card("duodecoding", idea="one long draft or several short ones, drafted while the target verifies",
            source="DuoDecoding, arXiv 2503.00784", make=make, parts=("speed-ratio", "multi-sequence", "rejection"),
            notebook="54_duodecoding", parallel=True, ahead=True)
