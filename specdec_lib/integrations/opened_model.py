"""A caller's transformers model with all that a method drafts from: checkpoints, a draft model, facts, memory.

The model itself verifies: our decoder does not replace it. For the Llama family its weights are shown to
trained drafters as our decoder would hold them, so that checkpoints made for it fit.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import Tensor

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.checkpoints.card import shelf_at
from specdec_lib.checkpoints.checkpoint_files import CheckpointFolder
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.heads.published import KINDS
from specdec_lib.hub import locate
from specdec_lib.hub.tokenizer import Tokenizer, token_facts
from specdec_lib.hub.vocab_overlap import fits_vocab
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.families import EMBEDDING, HEAD, as_llama
from specdec_lib.models.llama.weights import LayerWeights, LlamaWeights, fuse_layer
from specdec_lib.models.ngram import Ngram
from specdec_lib.models.shared_weights import OutputMatrix, SharedWeights
from specdec_lib.sampling import Sampling
from specdec_lib.specs import MethodSpec
from specdec_lib.types import LM, Refusal

TRAINED, NGRAM = "draft-lm", "ngram"
DRAFT = "give draft= a smaller transformers model of the same family"
Warn = Callable[[str], None]


class GivenTokenizer(NamedTuple):
    """transformers' tokenizer where a checkpoint's fingerprint is compared."""

    tokenizer: Any


@dataclass(frozen=True)
class OpenedModel:
    """A model with its drafters, kept from call to call; `memory` outlives a prompt."""

    model: Any
    target: HuggingFace
    facts: TokenizerFacts
    checkpoints: Mapping[str, Any]
    draft: LM | None
    memory: dict = field(default_factory=dict)

    def kit(self, sampling: Sampling | None, end: frozenset[int]) -> Kit:
        """A kit for one decode, with empty caches."""
        return Kit(self.target.fresh(), replace(self.facts, end=end), sampling, draft=self.draft and self.draft.fresh(),
                   checkpoints=self.checkpoints, memory=self.memory, parts=catalog.make_part)


def open_model(model, spec: MethodSpec, checkpoints: Path | None = None, draft=None, tokenizer=None,
               warn: Warn = lambda line: None, published: Mapping[str, str] | None = None) -> OpenedModel:
    """The model for this method; Refusal where it cannot be rolled back or what the method needs does not fit it.

    `published` names drafters by kind (`heads/published.py`), which replace trained ones.
    """
    trained, needed = catalog.needed_checkpoints(spec), catalog.needs(catalog.cards_of(spec))
    for kind in published or ():
        if KINDS[kind].stands_for not in trained:
            raise Refusal(f"{spec.name} does not draft with {KINDS[kind].what}: name a method that does, such as"
                          f" {KINDS[kind].such_as}, or leave {kind}= out")
    own_drafter = "draft" in needed and draft is None
    trains = bool(trained) or own_drafter
    target = HuggingFace(model, shared=llama_view(model) if trains else None)      # pyright: ignore[reportArgumentType]
    target.refuse_state()
    target.takes_trees = target.obeys_tree_masks()
    facts = facts_of(target, tokenizer)
    text = None if tokenizer is None else cast(Tokenizer, GivenTokenizer(tokenizer))
    called = getattr(model, "name_or_path", "") or type(model).__name__
    shelf = CheckpointFolder(shelf_at(checkpoints), target, text, called, warn, {NGRAM: Ngram.load})
    small: LM | None = None
    if draft is not None:
        small = draft_of(draft, target, tokenizer)
    elif own_drafter:
        small = trained_draft(shelf, target)
    given = {KINDS[kind].stands_for: published_drafter(kind, name, target) for kind, name in (published or {}).items()}
    both = ChainMap(given, shelf) if given else shelf        # pyright: ignore[reportArgumentType] - only read
    return OpenedModel(model, target, facts, both, small)


def facts_of(target: HuggingFace, tokenizer) -> TokenizerFacts:
    """What rules know of the tokens, the end tokens aside; without a tokenizer only vocabulary and context."""
    if tokenizer is None:
        return TokenizerFacts(vocab=target.vocab, context=target.context)
    return token_facts(tokenizer, frozenset(), target.vocab, target.context)


def trained_draft(shelf: CheckpointFolder, target: HuggingFace) -> LM:
    """The trained draft model of these checkpoints; Refusal that names `draft=` where none fits."""
    if TRAINED not in shelf:
        raise Refusal(f"this method drafts with a model, and there is no {TRAINED} in {shelf.folder}: {DRAFT}")
    try:
        return draft_lm(shelf[TRAINED].state, target.weights)
    except Refusal as why:
        raise Refusal(f"{why}; or {DRAFT}") from None


def draft_of(draft, target: HuggingFace, tokenizer=None) -> HuggingFace:
    """A draft model that transformers runs; Refusal where its vocabulary does not fit the target's.

    Two sizes can fit where one is padded further, which only the tokenizer tells.
    """
    if not hasattr(draft, "config"):
        raise Refusal(f"draft= takes a model and got {draft!r:.80}: load it with AutoModelForCausalLM.from_pretrained")
    small = HuggingFace(draft)
    small.refuse_state()
    known, wanted = small.vocab, target.vocab
    if known != wanted and (tokenizer is None or not fits_vocab(known, wanted, tokenizer)):
        unsure = "give tokenizer= if only their padding differs, else " if tokenizer is None and known < wanted else ""
        raise Refusal(f"the draft model knows {known} tokens and the target {wanted}: {unsure}use one of the same"
                      " family, with the same tokenizer")
    return small


def published_drafter(kind: str, name: str, target: HuggingFace) -> Any:
    """A published drafter in a folder or on the hub; Refusal where there is none or it does not fit the target."""
    one = KINDS[kind]
    folder = locate.model_folder(name, instead=f"{kind}= a folder or a hub name of {one.what}",
                                 convert=locate.CONVERT_BIN)
    try:
        return one.load(folder, target, folder.name if locate.path_of(name).is_dir() else name)
    except Refusal as why:
        raise Refusal(f"{why}; give {kind}= another one, or leave it out") from None


@dataclass(frozen=True)
class LayersOnDemand(Sequence[LayerWeights]):
    """The layers as our decoder holds them, each made when it is asked for and not kept."""

    shape: LlamaConfig
    get: Callable[[str], Tensor]

    def __len__(self) -> int:
        return self.shape.layers

    def __getitem__(self, place: Any) -> Any:      # a layer, or for a slice a tuple of layers
        if isinstance(place, slice):
            return tuple(self[one] for one in range(len(self))[place])
        layer = range(len(self))[place]
        return fuse_layer(self.shape, self.get, f"model.layers.{layer}.", lambda tensor: tensor,
                          layer not in self.shape.unturned)


def llama_view(model) -> LlamaWeights | SharedWeights | None:
    """A Llama-family model's weights as our decoder holds them, without copies but of Granite's embedding and head.

    None for another family, and where weights are quantised or have other names.
    """
    state = {name: weight.detach() for name, weight in model.named_parameters() if weight.is_floating_point()}
    try:
        shape, get = as_llama(model.config.to_dict(), state, state.__getitem__)
        norm = get("model.norm.weight")
        embedding = get(EMBEDDING).to(norm.dtype)  # where factors went into it, it was widened
        head = embedding if shape.tied else get(HEAD).to(norm.dtype)
        layers = LayersOnDemand(shape, get)
        layers[-1].down.dense()                    # fails now where names are others, and not while decoding
    except (Refusal, KeyError):
        return None
    return LlamaWeights(shape, embedding, cast(tuple[LayerWeights, ...], layers), norm,
                        OutputMatrix(head))        # pyright: ignore[reportArgumentType] - called and read as a packed one
