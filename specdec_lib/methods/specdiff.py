"""SpecDiff: each round, a diffusion model fills a block in a few steps, and the last step's tokens pass the ratio test.

Source: Christopher et al. 2024 (SpecDiff, arXiv 2408.05636): at second hand, blocks of 10 to 20 tokens in 4 to 6 steps
with a drafter for a GPU; every slot tested by its own distribution. Here only the tokens of the last step are, see
`what/diffusion_multistep.py`; at temperature 0 it equals `diffusion-draft` with as many steps. Cost: one drafter
forward per step, therefore two steps by default.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, depth: int = 4, steps: int = 2, window: int | None = None, weights: str = "diffusion-lm") -> Method:
    """`depth` tokens per round, with the same block near the token limit; `steps` forwards per block.

    `weights` names the checkpoint that drafts: diffusion-lm or diffusion-lm-aligned.
    """
    settings = {"window": window, "weights": weights}
    drafter = kit.part("denoised", steps=steps, block=max(1, depth), settings=settings)
    return Method(kit.part("fixed", depth=depth), drafter, kit.part("rejection"))


CARD = Card("specdiff", idea="a diffusion model fills a block in a few steps, with the ratio test for the last",
            source="Christopher et al. 2024, SpecDiff", make=make, parts=("fixed", "denoised", "rejection"),
            notebook="42_specdiff2")
