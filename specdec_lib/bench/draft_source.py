"""`--draft`: a model in a folder or on the hub, a trained language model, or the target's own first layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from specdec_lib import catalog
from specdec_lib.bench.provenance import without_folders
from specdec_lib.checkpoints.card import read_card
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder, checkpoint_names
from specdec_lib.checkpoints.trainable import ANY_TARGET, training_advice
from specdec_lib.heads.draft_lm import PACKED
from specdec_lib.hub import locate
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.hub.vocab_overlap import fits_vocab
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.ngram import Ngram
from specdec_lib.types import LM, Refusal, TappedLM

TRAINED = "draft-lm"                               # drafts if no model is named and it fits the target
MODELS = (TRAINED, "ngram")                        # checkpoints that are language models of their own
FIRST = "first-layers"
SHARE = 5                                          # every fifth of the target's layers: the untrained baseline
TAKES = f"--draft a folder, a hub name, {', '.join(MODELS)} or {FIRST}"
Say = Callable[[str], None]


@dataclass(frozen=True)
class DraftSource:
    """The draft model, its name in a summary, and the checkpoint's if it is one. All None without a draft model."""

    lm: LM | None = None
    name: str | None = None
    checkpoint: str | None = None


def check_draft(draft: str | None, shelf: Path, peers: Sequence[str] = (), target: str = "") -> None:
    """Refuses, before anything is loaded, a name that is not a draft model and a missing checkpoint."""
    if draft in MODELS:
        read_card(shelf, draft, target if draft in ANY_TARGET else "")
    elif draft is not None and draft != FIRST and not Path(draft).is_dir() and is_checkpoint(draft, shelf):
        raise Refusal(f"the checkpoint {draft} is not a language model, only its own methods use it: give {TAKES}")
    if "hf-assisted" in peers and draft in (*MODELS, FIRST):
        raise Refusal(f"hf-assisted needs a draft model that transformers can load, not {draft}: give --draft a"
                      " folder or a hub name")


def is_checkpoint(name: str, shelf: Path) -> bool:
    """Whether something trained has this name: on the shelf, among what is shipped, or once it is trained."""
    return (name in {*checkpoint_names(shelf), *checkpoint_names(SHIPPED)}
            or catalog.remedy(name).startswith("specdec train"))


def candidate(draft: str | None, needed: bool, shelf: Path) -> str | None:
    """The checkpoint that drafts, or will if it fits; a resumed run requires it unchanged."""
    if draft is not None or not needed:
        return draft if draft in MODELS else None
    try:
        read_card(shelf, TRAINED)
    except Refusal:                                # missing: the first layers draft, see `choose_draft`
        return None
    return TRAINED


def draft_folder(draft: str | None, text: Tokenizer, say: Say) -> Path | None:
    """The folder of an external draft model, or None. Refusal if it is missing or has another vocabulary."""
    if draft is None or draft in (*MODELS, FIRST):
        return None
    found = locate.model_folder(draft, say, TAKES)
    same_vocabulary(text, Tokenizer(found), draft)
    return found


def choose_draft(draft: str | None, target: LM, shelf: CheckpointFolder, say: Say) -> DraftSource:
    """The draft model if none is external; a default is announced on `say`. Refusal only for one given by name."""
    ours = cast(TappedLM, target)                  # else the shelf refuses, and nothing can be cut
    if draft == FIRST:
        return untrained_draft(ours)
    if draft is not None:
        return trained_draft(draft, ours, shelf)
    try:
        found = trained_draft(TRAINED, ours, shelf)
    except Refusal as why:
        found = untrained_draft(ours)
        say(f"{why}; " + (f"until then {found.name} will draft" if found.name else "no model drafts"))
        return found
    say(f"{TRAINED} is the draft model; --draft {FIRST} selects the untrained baseline")
    return found


def trained_draft(name: str, target: TappedLM, shelf: CheckpointFolder) -> DraftSource:
    """The trained language model of this name; Refusal if it is missing, damaged or for another target."""
    if name not in shelf:
        raise Refusal(f"there is no checkpoint {name} in {shelf.folder}:"
                      f" {training_advice(name, shelf.target, shelf.name)}")
    found = shelf[name]
    lm = found if isinstance(found, Ngram) else Transformer(PACKED(found, target.weights))
    if lm.vocab != target.vocab:
        raise Refusal(f"the checkpoint {name} knows {lm.vocab} tokens and {shelf.name} has {target.vocab}: "
                      f"{training_advice(name, shelf.target, shelf.name)}")
    return DraftSource(lm, name, name)


def untrained_draft(target: TappedLM) -> DraftSource:
    """The target's own first layers with its head; no model if the target cannot be cut."""
    cut = getattr(target, "first_layers", None)
    if cut is None:
        return DraftSource()
    layers = max(1, target.layers // SHARE)
    return DraftSource(cut(layers), f"{FIRST} ({layers} of {target.layers}, untrained)")


def checked_draft(draft: LM, target: LM, text: Tokenizer, name: str) -> DraftSource:
    """The draft model that was named; Refusal where its tokens are not the target's."""
    refuse_other_tokens(draft, target, text, name)
    return DraftSource(draft, without_folders(name))


def refuse_other_tokens(draft: LM, target: LM, text: Tokenizer, name: str) -> None:
    """Refuses a draft model that cannot read a token of the tokenizer, or that drafts ones the target does not know."""
    known, wanted = (getattr(lm, "vocab", None) for lm in (draft, target))
    if known is None or wanted is None:
        return
    if not fits_vocab(known, wanted, text.tokenizer):
        raise Refusal(f"the draft model {without_folders(name)} knows {known} tokens and the target {wanted}: it would"
                      " meet or draft ids that the other lacks, use one of the same family")


def same_vocabulary(target: Tokenizer, draft: Tokenizer, name: str) -> None:
    """Refuses a draft model with another vocabulary: its ids would mean other tokens."""
    if draft.tokenizer.get_vocab() != target.tokenizer.get_vocab():
        raise Refusal(f"the draft model {without_folders(name)} has another vocabulary than the target: its token ids"
                      " would mean other tokens, use one of the same family")
