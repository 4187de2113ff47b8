"""A pretrained diffusion model (Dream, LLaDA) handed in by name: it stands where the trained `diffusion-lm` would."""

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
    """Refuses a model that nothing would draft with: it is large, and would be loaded for nothing."""
    if name is not None and STANDS_FOR not in needs:
        raise Refusal("no method here drafts with a diffusion model: name one, such as diffusion-draft, or leave"
                      " --diffusion out")


def find_diffusion(name: str | None, text: Tokenizer, say: Say) -> tuple[Path, frozenset[int]] | None:
    """Its folder and the tokens that it shares with the target; Refusal for another tokenizer."""
    if name is None:
        return None
    folder = locate.model_folder(name, say, TAKES)
    return folder, shared_tokens(text, token_pieces(folder), without_folders(name))


def load_diffusion(name: str, where: tuple[Path, frozenset[int]], text: Tokenizer, target: LM, dtype: torch.dtype,
                   device: str,
                   say: Say) -> Pretrained:
    """The model made ready; a line on `say` names it and how many tokens it can hold."""
    folder, tokens = where
    model = load_pretrained(folder, tokens, dtype, device, text.facts.end, getattr(target, "vocab", 0),
                            without_folders(name))
    say(f"{model.name} drafts where a method wants a diffusion model; it holds {model.weights.shape.context} tokens")
    return model
