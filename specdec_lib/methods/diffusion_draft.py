"""Diffusion drafts: each round, the best tokens of a block that a small diffusion model fills, verified by rejection.

Source: Christopher et al. 2024 (SpecDiff), in the plain form with a fixed length and no search over the slots'
candidates: the baseline for methods that choose better. Cost: one drafter forward per denoising step and round.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, depth: int = 4, steps: int = 1, window: int | None = None, weights: str = "diffusion-lm") -> Method:
    """`depth` tokens per round, with the same block near the token limit; `steps` forwards per block.

    `weights` names the checkpoint that drafts: diffusion-lm or diffusion-lm-aligned.
    """
    drafter = kit.part("diffusion-lm", steps=steps, block=max(1, depth), window=window, weights=weights)
    return Method(kit.part("fixed", depth=depth), drafter, kit.part("rejection"))


CARD = Card("diffusion-draft", idea="a small diffusion model fills a block of fixed length at once",
            source="Christopher et al. 2024, SpecDiff", make=make, parts=("fixed", "diffusion-lm", "rejection"),
            notebook="28_what_diffusion_lm")
