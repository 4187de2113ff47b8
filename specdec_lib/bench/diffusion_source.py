"""`--diffusion`: a pretrained diffusion model (Dream, LLaDA) that replaces the trained `diffusion-lm`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import torch

from specdec_lib.bench.provenance import without_folders
from specdec_lib.heads.dream_llada import Pretrained, load_pretrained
from specdec_lib.hub import locate
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.hub.vocab_overlap import shared_tokens, token_pieces
from specdec_lib.types import LM, Refusal

STANDS_FOR = "diffusion-lm"
TAKES = "--diffusion a folder or a hub name of a Dream or LLaDA model"
Say = Callable[[str], None]


def check_diffusion(name: str | None, needs: Collection[str]) -> None:
    """Refuses a diffusion model that no method drafts with: it is large, and loading it is wasted."""
    if name is not None and STANDS_FOR not in needs:
        raise Refusal("no method here drafts with a diffusion model: name one, such as diffusion-draft, or leave"
                      " --diffusion out")


def find_diffusion(name: str | None, text: Tokenizer, say: Say) -> tuple[Path, frozenset[int]] | None:
    """The model's folder and the tokens shared with the target; Refusal for another tokenizer."""
    if name is None:
        return None
    folder = locate.model_folder(name, say, TAKES)
    return folder, shared_tokens(text, token_pieces(folder), without_folders(name))


def load_diffusion(name: str, where: tuple[Path, frozenset[int]], text: Tokenizer, target: LM, dtype: torch.dtype,
                   device: str,
                   say: Say) -> Pretrained:
    """Loads the model; one line on `say` gives its name and its context in tokens."""
    folder, tokens = where
    model = load_pretrained(folder, tokens, dtype, device, text.facts.end, getattr(target, "vocab", 0),
                            without_folders(name))
    say(f"{model.name} drafts for methods with a diffusion model; its context is {model.weights.shape.context} tokens")
    return model
