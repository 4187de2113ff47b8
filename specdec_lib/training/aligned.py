"""Streak distillation: a trained diffusion language model learns on, so that whole beginnings of its drafts are right.

It starts as a stored checkpoint, the base, and learns a small difference from that. A step sees wholly masked blocks
alone, as one step of drafting does, and with the depths weighed by `streak` the gradient is that of the tokens that are
accepted of a draft. Source: SpecDiff-2 (arXiv 2511.00606), there with differences of rank 32 and hard labels.
"""

from __future__ import annotations

from torch import Tensor

from specdec_lib.models.shelf import Checkpoint
from specdec_lib.models.transformer import Transformer
from specdec_lib.training.diffusion_lm import DiffusionLM
from specdec_lib.training.diffusion_losses import Mix

RANK = 40                                          # of the difference from the base: 2.1 MB for SmolLM2-135M
SMOOTH = 0.1                                       # a slot behind a sure miss weighs a little, as D-PACE late in a run
WHOLE = Mix(masked=0.0, text=0.0, noised=0.0)      # nothing but what one step of drafting sees


class Aligned(DiffusionLM):
    """A `DiffusionLM` that starts as `base` (`random`: from random weights); its layers learn differences of `rank`.

    Layers, block sizes and vocabulary are the base's, and `meta` names it by the checksum of its weights.
    """

    def __init__(self, target: Transformer, base: Checkpoint, mix: Mix = WHOLE, rank: int = RANK, random: bool = False):
        super().__init__(target, base.state["ids"], chosen=tuple(base.meta["layers"]),
                         blocks=tuple(base.meta["blocks"]), mix=mix, rank=rank, random=random)
        self.base = {"name": base.name, "sha256": base.card.get("sha256", "")}           # "" was never stored
        if not random:
            self.take(base.state)

    def meta(self) -> dict:
        return {**super().meta(), "base": self.base}


def aligned(target: Transformer, ids: Tensor, random: bool = False, base: Checkpoint | None = None) -> Aligned:
    """The drafter of a recipe; the vocabulary `ids` of a course is not asked for. ValueError without a base."""
    if base is None:
        raise ValueError("streak distillation goes on from a trained checkpoint, and none was given")
    return Aligned(target, base, random=random)
