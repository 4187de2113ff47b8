"""SAM with EAGLE-2 and ReSpec's trigger: the ablation step of ReSpec at which only the trigger is new.

Source: the entropy-guided trigger of ReSpec (arXiv 2511.01282) over the drafters of SAM-Decoding (Hu et al. 2024). The
trigger is that of `respec`; everything else is that of `sam+eagle2`, including the match that a copy needs, its tree
and their sizes. A run of all three therefore separates the gain of the trigger from that of the candidates. The trigger
joins the match length here and can only take copies away; `match=1` puts it in the place of the match length, which is
how we understand the paper. Lossless. Cost: no draft forward in rounds that copy, else EAGLE-2's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from specdec_lib.cards import Card, Kit
from specdec_lib.methods import respec, sam_eagle2
from specdec_lib.types import Method

COPY = "suffix-automaton"


def make(kit: Kit, theta: float | None = None, match: int | None = None) -> Method:
    """`theta` is the trigger's threshold in nats, `match` the tokens of match that a copy needs.

    They default to those of `respec` and of `sam+eagle2`.
    """
    base, trigger = cast(Any, sam_eagle2.make(kit)), cast(Any, respec.make(kit).when)  # match-length, entropy-trigger
    copies, theta = base.what.drafters[COPY], trigger.threshold if theta is None else theta
    drafters = {**base.what.drafters, COPY: replace(copies, threshold=base.when.threshold if match is None else match)}
    return Method(replace(trigger, retrieve=base.when.copy, model=base.when.other, threshold=theta),
                  replace(base.what, drafters=drafters), base.how)


CARD = Card("sam+eagle2+trigger", idea="copy the longest match at low entropy, else EAGLE-2",
            source="ReSpec, arXiv 2511.01282", make=make, notebook="40_respec",
            parts=("entropy-trigger", "suffix-automaton", "eagle2", "switch", "match"))
