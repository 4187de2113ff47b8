"""The four models of the digits: a target and a draft with mixture heads, and a pair with diffusion heads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from specdec_lib.checkpoints.checkpoint_files import SHIPPED, Checkpoint, load_checkpoint
from specdec_lib.checkpoints.trainable import DIGITS as NAME  # of the checkpoint that holds all four
from specdec_lib.continuous.densities import Density
from specdec_lib.continuous.heads import DiffusionHead, MixtureHead, PatchHead
from specdec_lib.continuous.transformer import PatchTransformer, Size
from specdec_lib.types import Refusal

HEADS = {"mixture": MixtureHead, "diffusion": DiffusionHead}
SIZES = {"mixture.target": Size(64, 4, 4), "mixture.draft": Size(32, 1, 2),
         "diffusion.target": Size(64, 4, 4, 64, 3), "diffusion.draft": Size(32, 1, 2, 32, 1)}


class PatchModel(nn.Module):
    """A transformer over patches and the head on it."""

    def __init__(self, name: str, size: Size | None = None, seed: int = 0):
        super().__init__()
        size = size or SIZES[name]
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            self.body, self.head = PatchTransformer(size), HEADS[name.split(".")[0]](size)

    @property
    def draws(self) -> int:
        """Rows of noise that one patch takes."""
        return cast(PatchHead, self.head).draws

    def density(self, hidden: Tensor, normals: Tensor) -> Density:
        """The density of the next patch after these hidden states, given this noise [..., draws, 4]."""
        return cast(PatchHead, self.head).density(hidden, normals)

    def loss(self, tokens: Tensor, labels: Tensor, dice: torch.Generator) -> Tensor:
        """The head's loss on images [n, 16, 4]."""
        return cast(PatchHead, self.head).loss(self.body(tokens, labels), tokens, dice)


def load_model(stored: Checkpoint, name: str) -> PatchModel:
    """The model of this name; Refusal where the checkpoint holds none, or one of another shape."""
    model = PatchModel(name, Size(*stored.meta["sizes"][name]) if name in stored.meta["sizes"] else None)
    own = {key.removeprefix(f"{name}."): tensor for key, tensor in stored.state.items() if key.startswith(f"{name}.")}
    try:
        model.load_state_dict(own)
    except RuntimeError:
        raise Refusal(f"the checkpoint {stored.name} holds no {name} of this shape: `specdec train {NAME}` makes one"
                      ) from None
    return model.eval()


def load_pair(kind: str, folder: Path = SHIPPED) -> tuple[PatchModel, PatchModel]:
    """The target and the draft with heads of this kind; Refusal for another kind or a damaged checkpoint."""
    if kind not in HEADS:
        raise Refusal(f"the heads are {' and '.join(HEADS)}, got {kind!r}")
    stored = load_checkpoint(folder, NAME)
    return load_model(stored, f"{kind}.target"), load_model(stored, f"{kind}.draft")


def named_state(models: Mapping[str, PatchModel]) -> dict[str, Tensor]:
    """The tensors of several models under the names of one checkpoint."""
    return {f"{name}.{key}": tensor for name, model in models.items() for key, tensor in model.state_dict().items()}
