"""A pretrained diffusion model (Dream, LLaDA) handed in by name: it stands where the trained `diffusion-lm` would."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import torch

from specdec_lib.bench.provenance import bare
from specdec_lib.models import checkpoints
from specdec_lib.models.heads.pretrained import Pretrained, load_pretrained
from specdec_lib.models.pieces import pieces, shared
from specdec_lib.models.text import Text
from specdec_lib.types import LM, Refusal

STANDS_FOR = "diffusion-lm"
TAKES = "--diffusion a folder or a hub name of a Dream or LLaDA model"
Say = Callable[[str], None]


def check(name: str | None, needs: Collection[str]) -> None:
    """Refuses a model that nothing would draft with: it is large, and would be loaded for nothing."""
    if name is not None and STANDS_FOR not in needs:
        raise Refusal("no method here drafts with a diffusion model: name one, such as diffusion-draft, or leave"
                      " --diffusion out")


def found(name: str | None, text: Text, say: Say) -> tuple[Path, frozenset[int]] | None:
    """Its folder and the tokens that it shares with the target; Refusal for another tokenizer."""
    if name is None:
        return None
    folder = checkpoints.locate(name, say, TAKES)
    return folder, shared(text, pieces(folder), bare(name))


def load(name: str, where: tuple[Path, frozenset[int]], text: Text, target: LM, dtype: torch.dtype, device: str,
         say: Say) -> Pretrained:
    """The model made ready; a line on `say` names it and how many tokens it can hold."""
    folder, tokens = where
    model = load_pretrained(folder, tokens, dtype, device, text.facts.end, getattr(target, "vocab", 0), bare(name))
    say(f"{model.name} drafts where a method wants a diffusion model; it holds {model.weights.shape.context} tokens")
    return model
