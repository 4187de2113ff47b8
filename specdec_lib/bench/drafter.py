"""Who drafts: a model in a folder or on the hub, a language model on the shelf, or the target's own first layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec_lib import catalog
from specdec_lib.bench.provenance import bare
from specdec_lib.models import checkpoints
from specdec_lib.models.card import read_card
from specdec_lib.models.heads.small import PACKED
from specdec_lib.models.ngram import Ngram
from specdec_lib.models.shelf import Shelf, names
from specdec_lib.models.text import Text
from specdec_lib.models.transformer import Transformer
from specdec_lib.types import LM, Refusal

TRAINED = "draft-lm"                               # drafts where no model is named and it fits the target
MODELS = (TRAINED, "ngram")                        # checkpoints that are language models of their own
FIRST = "first-layers"
SHARE = 5                                          # every fifth of the target's layers: the untrained baseline
TAKES = f"--draft a folder, a hub name, {', '.join(MODELS)} or {FIRST}"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Drafter:
    """The model, and its name in a summary; `checkpoint` names it on the shelf. All None where nothing can draft."""

    lm: LM | None = None
    name: str | None = None
    checkpoint: str | None = None


def check(draft: str | None, shelf: Path, peers: Sequence[str] = ()) -> None:
    """Refuses what can be refused before anything is loaded: a name that is no draft model, a missing checkpoint."""
    if draft in MODELS:
        read_card(shelf, draft)
    elif draft is not None and draft != FIRST and not Path(draft).is_dir() and (
            draft in names(shelf) or catalog.remedy(draft).startswith("specdec train")):
        raise Refusal(f"the checkpoint {draft} is no language model, methods of its own draft with it: give {TAKES}")
    if "hf-assisted" in peers and draft in (*MODELS, FIRST):
        raise Refusal(f"hf-assisted needs a draft model that transformers can read, and {draft} is none: give --draft a"
                      " folder or a hub name")


def candidate(draft: str | None, needed: bool, shelf: Path) -> str | None:
    """The checkpoint that drafts, or will if it fits: what a run that is resumed has to find unchanged."""
    if draft is not None or not needed:
        return draft if draft in MODELS else None
    try:
        read_card(shelf, TRAINED)
    except Refusal:                                # none there: the first layers will draft, see `choose`
        return None
    return TRAINED


def folder(draft: str | None, text: Text, say: Say) -> Path | None:
    """The folder of a draft model from outside; None where none is meant. Refusal for a foreign or missing one."""
    if draft is None or draft in (*MODELS, FIRST):
        return None
    found = checkpoints.locate(draft, say, TAKES)
    same_vocabulary(text, Text(found), draft)
    return found


def choose(draft: str | None, target: LM, shelf: Shelf, say: Say) -> Drafter:
    """The drafter that needs no folder, and one line on `say`; Refusal only for one that was asked for by name."""
    if draft == FIRST:
        return untrained(target)
    if draft is not None:
        return trained(draft, target, shelf)
    try:
        found = trained(TRAINED, target, shelf)
    except Refusal as why:
        found = untrained(target)
        say(f"{why}; until then {found.name or 'no model'} will draft")
        return found
    say(f"{TRAINED} drafts where a method wants a model, --draft {FIRST} takes the untrained baseline")
    return found


def trained(name: str, target: LM, shelf: Shelf) -> Drafter:
    """The language model of this name on the shelf; Refusal where it is missing, damaged or another target's."""
    read_card(shelf.folder, name)
    found = shelf[name]
    lm = found if isinstance(found, Ngram) else Transformer(PACKED(found, target.weights))
    if lm.vocab != target.vocab:
        raise Refusal(f"the checkpoint {name} knows {lm.vocab} tokens and {shelf.name} has {target.vocab}: "
                      f"`specdec train {name} --target {shelf.name}` makes one that fits")
    return Drafter(lm, name, name)


def untrained(target: LM) -> Drafter:
    """The target's own first layers with its head; nothing where the model cannot be cut."""
    cut = getattr(target, "first_layers", None)
    if cut is None:
        return Drafter()
    layers = max(1, target.layers // SHARE)
    return Drafter(cut(layers), f"{FIRST} ({layers} of {target.layers}, untrained)")


def same_vocabulary(target: Text, draft: Text, name: str) -> None:
    """Refuses a draft model whose tokens are not the target's: its ids would mean something else."""
    if draft.tokenizer.get_vocab() != target.tokenizer.get_vocab():
        raise Refusal(f"the draft model {bare(name)} has another vocabulary than the target: its token ids would"
                      " mean other words, take one of the same family")
