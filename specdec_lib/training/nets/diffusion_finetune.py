"""Diffusion language models that go on from a trained checkpoint: what they start as, and what differs from it.

`diffusion-lm` goes on from `draft-lm`: without masks both are the same small model, so a block of one is right as often
as that one is before the first step, and training is left with the masks. From the target's own layers, six of them
evenly spaced, the same minutes on two processor cores were spent on the first slot.

`diffusion-lm-aligned` goes on from `diffusion-lm` with streak weights, as SpecDiff-2 does, but with the target's
distribution as the label and its best token's probabilities in the weights; SpecDiff-2 takes the text's own token,
drawn from the target, for both. `specdec train diffusion-lm-aligned --labels token --smooth 0` is the paper's
objective; its result is in `data/results/training.md`.
"""

from __future__ import annotations

from torch import Tensor

from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.losses.diffusion import Mix
from specdec_lib.training.nets.diffusion_lm import DiffusionNet

RANK = 128                                         # of the difference from draft-lm: 1.1 MB a layer of SmolLM2-135M
MASKS = Mix(masked=0.5, text=0.25, noised=0.2, anchors=128, spacing=4)         # the rows of text are trained already
ALIGNED_RANK = 64                                  # of the difference from the base: 1.6 MB for SmolLM2-135M
ALIGNED_SMOOTH = 0.1                               # a slot after a sure miss keeps a little weight, as late in D-PACE
WHOLLY_MASKED = Mix(masked=0.0, text=0.0, noised=0.0, anchors=128, spacing=4)  # what one drafting step sees


class FinetunedDiffusion(DiffusionNet):
    """A `DiffusionNet` that starts as `base` (`random`: from random weights); its layers learn differences of `rank`.

    Layers and vocabulary are the base's, and so are block sizes and mask if it has them; `meta` names the base by the
    checksum of its weights.
    """

    def __init__(self, target: Transformer, base: Checkpoint, mix: Mix, rank: int, random: bool = False):
        super().__init__(target, base.state["ids"], chosen=tuple(base.meta["layers"]),
                         blocks=tuple(base.meta.get("blocks", (4, 8))), mix=mix, rank=rank, random=random)
        self.base = {"name": base.name, "sha256": base.card.get("sha256", "")}           # "": not stored yet
        if not random:
            self.take({"mask": self.mask.detach(), **base.state})

    def meta(self) -> dict:
        return {**super().meta(), "base": self.base}


def diffusion_from_draft_lm(target: Transformer, ids: Tensor, random: bool = False,
                            base: Checkpoint | None = None) -> FinetunedDiffusion:
    """The drafter that starts from `draft-lm`; its vocabulary is the base's, so `ids` is not used."""
    return FinetunedDiffusion(target, base_checkpoint(base), MASKS, RANK, random)


def base_checkpoint(base: Checkpoint | None) -> Checkpoint:
    """The base; ValueError without one."""
    if base is None:
        raise ValueError("this drafter starts from a trained checkpoint, and none was given")
    return base


def aligned_diffusion(target: Transformer, ids: Tensor, random: bool = False,
                      base: Checkpoint | None = None) -> FinetunedDiffusion:
    """The drafter that starts from `diffusion-lm`; its vocabulary is the base's, so `ids` is not used."""
    return FinetunedDiffusion(target, base_checkpoint(base), WHOLLY_MASKED, ALIGNED_RANK, random)
