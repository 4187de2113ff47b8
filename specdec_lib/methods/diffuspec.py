"""DiffuSpec: a diffusion drafter's block, searched for a consistent path, with an adaptive length.

Source: DiffuSpec (Li et al. 2025, arXiv 2510.02358): path search over the slots' candidates and a controller of the
draft length. Here the target's own token follows every draft, and a searched path is deterministic, so the output is
the target's own at every temperature. The two halves are switched off separately: `weight=1` leaves the best token of
every slot, `depth=6` fixes the length. The paper's setting is `diffuspec(rule='printed', shortest=20, longest=30,
growth=10, score='sum')`. Cost: one drafter forward and one search per round.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit, naming
from specdec_lib.types import Method


def make(kit: Kit, drafter: str = "diffusion-lm", depth: int | None = None, rule: str = "corrected", shortest: int = 2,
         longest: int = 8, growth: int = 2, rate: float = 0.5, share: float = 0.6, margin: int = 2, beam: int = 3,
         mass: float = 0.8, cap: int = 15, weight: float = 0.5, score: str = "mean", keep_end: bool = True,
         block: int | None = None, first: int = 1) -> Method:
    """`depth` fixes the length; without it the controller's parameters apply. The others are the search's."""
    when = (kit.part("fixed", depth=depth) if depth is not None else
            kit.part("adaptive-length", rule=rule, shortest=shortest, longest=longest, growth=growth, rate=rate,
                     share=share, margin=margin))
    what = kit.part("path-search", drafter=drafter, beam=beam, mass=mass, cap=cap, weight=weight, score=score,
                    keep_end=keep_end, block=block, first=first)
    return Method(when, what, kit.part("match"))


CARD = Card("diffuspec", idea="search a diffusion drafter's slots, with an adaptive length",
            source="DiffuSpec, arXiv 2510.02358", make=make, parts=("adaptive-length", "fixed", "path-search", "match"),
            named=naming(drafter="what"), notebook="41_diffuspec")
