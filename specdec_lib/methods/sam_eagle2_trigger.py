"""SAM with EAGLE-2, and the target's entropy says which: the rung of ReSpec's ladder on which the trigger alone is new.

Source: the entropy-guided trigger of ReSpec (arXiv 2511.01282) over the drafters of SAM-Decoding (Hu et al. 2024). The
trigger is that of `respec`, everything else that of `sam+eagle2`, its longest match, its tree and their sizes included,
so that a run of all three says what the trigger wins and what the candidates win. Lossless.
"""

from __future__ import annotations

from dataclasses import replace

from specdec_lib.methods import respec, sam_eagle2
from specdec_lib.types import Card, Kit, Method


def make(kit: Kit, theta: float | None = None) -> Method:
    """`theta` is the trigger's threshold in nats; by default what `respec` takes."""
    below, trigger = sam_eagle2.make(kit), respec.make(kit).when
    theta = trigger.threshold if theta is None else theta
    return below._replace(when=replace(trigger, retrieve=below.when.copy, model=below.when.other, threshold=theta))


CARD = Card("sam+eagle2+trigger", idea="copy the longest match while the target is sure, else EAGLE-2",
            source="ReSpec, arXiv 2511.01282", make=make, notebook="40_respec",
            parts=("entropy-trigger", "suffix-automaton", "eagle2", "switch", "match"))
