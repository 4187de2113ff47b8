"""Any other causal language model of transformers, as a language model whose cache aligns itself.

Chains need a cache that can be cropped. Trees also need a mask of four dimensions and free positions; a trial call
finds out whether an architecture takes them, since not all that accept a mask obey it. Tapped hidden states lie beside
the cache, row by row, for drafters that read them. Weights come from safetensors alone, and remote code is never run.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from pathlib import Path

import torch
from torch import Tensor

from specdec_lib.models.attention_span import moves_after, windows_of
from specdec_lib.models.huggingface_cache import PastRows
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.logits_cache import LogitsCache
from specdec_lib.models.llama.weights import safetensors_files
from specdec_lib.models.pretrained import pretrained
from specdec_lib.models.shared_weights import SharedWeights, shared_weights
from specdec_lib.models.tree_masks import tree_masks
from specdec_lib.scores import Scores
from specdec_lib.types import Draft, Refusal

CHUNK = 512                                        # rows fed at once while a prompt is read
TRIAL = 16                                         # tokens of a trial text
NOT_THE_FILES = ("install", "No module named", "configuration class", "does not recognize", "custom code")
SCALES = ("weight_scale", "weight_scale_inv", "input_scale", "scales")      # of quantised weights


class HuggingFace:
    """A language model (types.LM) around `model`. `forwards` counts its calls, `fed` the tokens given to it."""

    def __init__(self, model, takes_trees: bool | None = None, shared: SharedWeights | Refusal | None = None):
        self.model, self.takes_trees = model, takes_trees                 # None: not tried yet
        self.shared = shared_or_why_not(model) if shared is None else shared
        self.options = frozenset(inspect.signature(model.forward).parameters)
        self.cache, self.answers = PastRows(), LogitsCache()
        self.forwards = self.fed = 0

    @staticmethod
    def load(folder: str | Path, dtype: torch.dtype = torch.float32, device="cpu", why: str = "") -> HuggingFace:
        """The checkpoint in this folder, and `why` our decoder does not run it; Refusal if transformers cannot."""
        safetensors_files(folder)
        try:
            model, told = pretrained("AutoModelForCausalLM", folder, dtype=dtype, use_safetensors=True,
                                     output_loading_info=True)
        except Exception as error:                 # loading code raises anything; in each case there is no model
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            again = "" if any(part in reason for part in NOT_THE_FILES) else "fetch it again, or "
            raise Refusal(f"transformers cannot load {folder} as a causal language model"
                          f"{' (' + why + ')' if why else ''}: {reason}; {again}take another model") from error
        refuse_filled(folder, told["missing_keys"])
        refuse_unscaled(folder, told["unexpected_keys"])
        moved = model.to(device)                   # pyright: ignore[reportArgumentType] - the stub hides `self`
        lm = HuggingFace(moved.eval())
        lm.refuse_state()
        lm.takes_trees = lm.obeys_tree_masks()
        return lm

    @property
    def config(self):
        return self.model.config.get_text_config()

    @property
    def context(self) -> int | None:
        """The tokens that the model holds, before its positions change with the length."""
        held = (getattr(self.config, name, None) for name in ("max_position_embeddings", "max_seq_len"))     # MPT's
        ends = *held, self.moves_after
        return min((end for end in ends if end is not None), default=None)

    @property
    def moves_after(self) -> int | None:
        """See `attention_span.py`."""
        return moves_after(self.config)

    @property
    def vocab(self) -> int:
        return self.config.vocab_size

    @property
    def layers(self) -> int:
        return self.config.num_hidden_layers

    @property
    def weights(self) -> SharedWeights:
        """What drafters share with the model; AttributeError, as of a table, where `tap` is refused."""
        if isinstance(self.shared, Refusal):
            raise AttributeError(str(self.shared))
        return self.shared

    @property
    def shape(self) -> LlamaConfig:
        """The shape of a drafter's own layer."""
        return self.weights.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def device(self) -> torch.device:
        return self.model.device

    def fresh(self) -> HuggingFace:
        """The same weights with an empty cache and no taps."""
        return HuggingFace(self.model, self.takes_trees, self.shared)

    def tap(self, levels: tuple[int, ...]) -> None:
        """Chooses the hidden states kept for `features`; a new choice drops the rows that were fed before.

        0 is the input of the first layer (the embedding, with positions or a norm where the model adds them), i the
        output of layer i, the last one the normed state before the head. Raises Refusal where a drafter could not share
        the model's embedding and output matrix.
        """
        shared = self.shared_weights()
        if not all(0 <= level <= self.layers for level in levels):
            raise ValueError(f"taps lie between 0 and {self.layers}, got {tuple(levels)}")
        if tuple(levels) != self.cache.taps:
            self.cache.tap(tuple(levels), shared)

    def features(self, tokens: tuple[int, ...]) -> Tensor:
        """The taps [fed, taps, hidden] of exactly this context, without a forward; accepted nodes are included.

        The last token may not have been fed yet; ValueError if more are missing. A view, valid until the context
        shrinks.
        """
        if self.cache.features is None:
            raise ValueError("no taps were chosen: call tap(levels) before the prompt is fed")
        fed = self.cache.fed(tokens)
        if fed < len(tokens) - 1:
            raise ValueError(f"only {fed} of these {len(tokens)} tokens have been fed")
        return self.cache.features[:fed]

    def head_gives_logits(self) -> bool:
        """Whether the output matrix times the last hidden state gives the logits, up to rounding: a trial text.

        Not so where the model scales or caps its logits afterwards. Raises Refusal where `tap` does.
        """
        tokens = [i * self.vocab // TRIAL for i in range(TRIAL)]
        with torch.no_grad():
            out = self.model(input_ids=torch.tensor([tokens], device=self.device), output_hidden_states=True,
                             use_cache=False)
            product, logits = self.shared_weights().head(self.states_of(out)[-1]).float(), out.logits.float()
        return bool((product - logits).abs().max() <= max(1e-5, torch.finfo(self.dtype).eps) * logits.abs().max())

    def shared_weights(self) -> SharedWeights:
        """What drafters share with the model; Refusal where they cannot."""
        if isinstance(self.shared, Refusal):
            raise Refusal(*self.shared.args)
        return self.shared

    def exit(self, layer: int, head: object = None) -> HuggingFace:
        raise Refusal("an early exit of this architecture is not available: transformers runs all its layers")

    def prefill(self, tokens: tuple[int, ...]) -> None:
        """Feeds these tokens and keeps no logits."""
        self.cache.align(tokens, Draft())
        self.catch_up(len(tokens))

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        """Raises Refusal for a tree where the architecture takes chains only."""
        if not tokens:
            raise ValueError("a model needs at least one token of context")
        if any(parent != node - 1 for node, parent in enumerate(draft.parents)):
            self.refuse_trees()
        known = self.answers.known(tokens, draft)
        if known <= len(draft):
            first, total = len(tokens) - 1 + known, len(tokens) + len(draft)
            self.cache.align(tokens, draft, first)
            self.catch_up(len(tokens) - 1, CHUNK)
            self.answers.keep(tokens, draft, known, self.run(total, total - first))
        return Scores(self.answers.rows(draft))

    def catch_up(self, stop: int, slack: int = 0) -> None:
        """Feeds the context up to row `stop` in chunks, unless at most `slack` rows of it are missing."""
        while stop - len(self.cache.rows) > slack:
            self.run(min(stop, len(self.cache.rows) + CHUNK), 1)

    def run(self, stop: int, keep: int) -> Tensor:
        """Feeds the rows before `stop` that are missing; logits of the last `keep` of them."""
        start = len(self.cache.rows)
        given = {"input_ids": torch.tensor([self.cache.rows.flat(start, stop)], device=self.device),
                 "past_key_values": self.cache.past, "use_cache": True}
        if not self.cache.rows.chain(stop):
            positions = [self.cache.rows.position(row) for row in range(start, stop)]
            given |= {"attention_mask": self.masks(start),
                      "position_ids": torch.tensor([positions], device=self.device)}
        if "logits_to_keep" in self.options:
            given["logits_to_keep"] = keep
        if self.cache.taps:
            given["output_hidden_states"] = True
        with torch.no_grad():
            out = self.model(**given)
        if self.cache.taps:
            self.cache.keep(self.states_of(out), start)
        self.cache.rows.depth += [1] * (stop - start)
        self.forwards, self.fed = self.forwards + 1, self.fed + stop - start
        return out.logits[0, -keep:]

    def states_of(self, out) -> tuple[Tensor, ...]:
        """The hidden states of a forward, one more than layers; Refusal where the model gives others."""
        states = getattr(out, "hidden_states", None)
        if states is None or len(states) != self.layers + 1 or states[-1].shape[-1] != self.shape.hidden:
            raise Refusal(f"{type(self.model).__name__} gives no hidden state after each of its {self.layers} layers,"
                          " so no drafter can read them")
        return states

    def masks(self, start: int) -> Tensor | dict[str, Tensor]:
        """What hides a tree's other branches from its rows, on the model's device; see `tree_masks.py`."""
        masks = tree_masks(self.config, self.cache.rows, start, self.dtype)
        if isinstance(masks, Tensor):
            return masks.to(self.device)
        return {kind: mask.to(self.device) for kind, mask in masks.items()}

    def refuse_state(self) -> None:
        """Raises Refusal for an architecture whose cache is not one row per token, since it cannot be rolled back."""
        try:
            self.run_alone((0, 0), Draft())
            kept = [getattr(layer, "keys").shape[-2] for layer in self.cache.past.layers]        # noqa: B009 - not on all
            whole = bool(kept) and set(kept) == {2}
        except Exception:                          # models with another kind of state fail with any error
            whole = False
        if not whole:
            raise Refusal(f"{type(self.model).__name__} does not keep a row of keys and values per token in every"
                          " layer, so no draft can be taken back: choose a model with plain attention in every layer")
        self.cache.clear()
        self.forwards = self.fed = 0

    def refuse_trees(self) -> None:
        """Raises Refusal where siblings change each other's logits, or the model does not take the mask."""
        if self.takes_trees is None:
            self.takes_trees = self.obeys_tree_masks()
        if not self.takes_trees:
            raise Refusal(f"this model takes chains only: {type(self.model).__name__} does not follow a tree's mask and"
                          " positions, so use a method that drafts chains, or width 1")

    def obeys_tree_masks(self) -> bool:
        """Whether a path in a tree of two siblings scores as the same path alone: a trial with two short inputs.

        Windows hold two tokens meanwhile, so that one that the model and `tree_masks.py` read differently shows.
        """
        if "position_ids" not in self.options:
            return False
        a, b, c = (min(token, self.vocab - 1) for token in (1, 2, 3))
        try:
            with windows_of(2, self.config):
                tree = self.fresh().run_alone((a, b), Draft((a, b, c), (-1, -1, 1)))[-1]
                path = self.fresh().run_alone((a, b, b, c), Draft())[-1]
        except Exception:                          # an architecture that does not take the mask fails with any error
            return False
        return bool((tree - path).abs().max() <= 0.05 * path.std())

    def run_alone(self, tokens: tuple[int, ...], draft: Draft) -> Tensor:
        self.cache.align(tokens, draft)
        return self.run(len(tokens) + len(draft), 1 + len(draft)).float()


def refuse_filled(folder: str | Path, missing: Collection[str]) -> None:
    """Raises Refusal where transformers filled tensors that no file holds with random numbers."""
    if missing:
        raise Refusal(f"{folder} lacks tensors that its config.json asks for, such as {min(missing)}: the config is"
                      " another model's or the download is incomplete, fetch the model again")


def refuse_unscaled(folder: str | Path, unread: Collection[str]) -> None:
    """Raises Refusal where transformers left out factors of quantised weights."""
    left_out = [name for name in unread if name.rpartition(".")[2] in SCALES]
    if left_out:
        raise Refusal(f"{folder} is quantised, and transformers leaves out {min(left_out)}: take the model that is not")


def shared_or_why_not(model) -> SharedWeights | Refusal:
    """What drafters share with the model, or the reason why they cannot."""
    try:
        return shared_weights(model)
    except Refusal as why:
        return why
