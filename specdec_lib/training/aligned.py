"""Streak distillation: a trained diffusion language model learns on, so that whole beginnings of its drafts are right.

A step sees wholly masked blocks alone, as one step of drafting does, and with the depths weighed by `streak` the
gradient is that of the tokens that are accepted of a draft. Source: SpecDiff-2 (arXiv 2511.00606), there with
differences of rank 32 and hard labels.
"""

from __future__ import annotations

from torch import Tensor

from specdec_lib.models.shelf import Checkpoint
from specdec_lib.models.transformer import Transformer
from specdec_lib.training.diffusion_losses import Mix
from specdec_lib.training.further import Further, needed

RANK = 64                                          # of the difference from the base: 1.6 MB for SmolLM2-135M
SMOOTH = 0.1                                       # a slot behind a sure miss weighs a little, as D-PACE late in a run
WHOLE = Mix(masked=0.0, text=0.0, noised=0.0, anchors=128, spacing=4)         # what one step of drafting sees


def aligned(target: Transformer, ids: Tensor, random: bool = False, base: Checkpoint | None = None) -> Further:
    """The drafter that goes on from `diffusion-lm`; the vocabulary `ids` of a course is not asked for."""
    return Further(target, needed(base), WHOLE, RANK, random)
