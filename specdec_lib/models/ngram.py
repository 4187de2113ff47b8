"""N-gram: a trigram over token ids as a language model, and as a cheap score of which tokens follow each other.

Source: interpolated Kneser-Ney (Chen and Goodman 1998); the left-to-right proxy of DiffuSpec's path search (Li et al.
2025). A distribution is the trigram's own mass plus the remaining mass times the bigram's distribution, which is built
likewise from the unigram's. The remaining mass is computed from the stored shares, so every distribution sums to one
however they were rounded. It sees the last two tokens alone. Counted by `training.data.ngram_counts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specdec_lib.scores import Scores
from specdec_lib.types import Draft, Refusal

Array = np.ndarray | Tensor
NOTHING = -1                                       # in a context, where there is no token
ORDERS = ("bigram", "trigram")
NAMES = ("unigram", *(f"{order}.{part}" for order in ORDERS for part in ("sizes", "tokens", "mass")))


class NgramOrder:
    """One order: `mass` of (context, token) pairs, remaining mass `left [contexts + 1]`, the last for unknown."""

    def __init__(self, sizes: np.ndarray, tokens: np.ndarray, mass: np.ndarray, vocab: int):
        context = np.repeat(np.arange(len(sizes)), sizes)
        self.vocab, self.tokens, self.mass = vocab, tokens, mass
        self.keys = np.append(context * vocab + tokens, np.iinfo(np.int64).max)      # the last is a sentinel
        kept = np.bincount(context, weights=mass, minlength=len(sizes) + 1)
        self.left = np.maximum(1.0 - kept, 0)                  # `bincount` of nothing has whole numbers
        self.start = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))

    def place(self, context: np.ndarray, token: np.ndarray) -> np.ndarray:
        """The index of each pair, NOTHING if it is not stored; one binary search each."""
        key = context * self.vocab + token                     # negative, so never found, after an unknown context
        found = np.searchsorted(self.keys, key)
        return np.where((token != NOTHING) & (self.keys[found] == key), found, NOTHING)

    def mix(self, context: np.ndarray, token: np.ndarray, below: np.ndarray) -> np.ndarray:
        """The probability of each token after its context, given its probability one order below."""
        place = self.place(context, token)
        own, seen = np.zeros(place.shape), place != NOTHING
        own[seen] = self.mass[place[seen]]
        return own + self.left[context] * below

    def after(self, context: int) -> np.ndarray:
        """The tokens stored after one context; none after NOTHING, as `start[-1]` is the end."""
        return self.tokens[self.start[context]:self.start[context + 1]]


class Ngram:
    """An interpolated trigram from its `arrays` (`training.data.ngram_counts.count`): an LM without a cache.

    Refusal where arrays are missing or do not fit each other. Probabilities are float64, rows of logits float32.
    """

    context: int | None = None

    def __init__(self, arrays: Mapping[str, Array]):
        checked_arrays(arrays)
        unigram, *rest = (np.asarray(arrays[name]) for name in NAMES)
        self.vocab = len(unigram)
        self.unigram = unigram.astype(np.float64) / unigram.sum(dtype=np.float64)
        self.log_unigram = np.log(self.unigram).astype(np.float32)
        as_ids = [part if i % 3 == 2 else part.astype(np.int64) for i, part in enumerate(rest)]
        self.bigram, self.trigram = (NgramOrder(sizes, tokens, mass, self.vocab)
                                     for sizes, tokens, mass in (as_ids[:3], as_ids[3:]))
        self._recent = lru_cache(32)(self.row)                 # a growing draft needs the same rows again

    @classmethod
    def load(cls, file: str | Path) -> Ngram:
        """The n-gram of one safetensors file, read through a memory map; Refusal if missing or no whole n-gram."""
        if not Path(file).is_file():
            raise Refusal(f"there is no n-gram at {file}: count one with `specdec train ngram`")
        try:
            with safe_open(file, "pt") as opened:              # "pt" maps the file, "numpy" would copy it
                arrays = {name: opened.get_tensor(name) for name in opened.keys()}       # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise Refusal(f"{file} is not a whole n-gram: count it again with `specdec train ngram`") from error
        return cls(arrays)

    def logp(self, context: Sequence[int], tokens: Array) -> np.ndarray:
        """log p of each of `tokens [m]` after the last two tokens of `context`, which may be shorter: [m], nats."""
        return self.logp_batch(np.array([last_two(context)]), np.asarray(tokens)[None])[0]

    def logp_batch(self, contexts: Array, tokens: Array) -> np.ndarray:
        """log p of `tokens [..., m]` after `contexts [..., 2]`, oldest token first, NOTHING for none: [..., m], nats.

        ValueError for ids outside the vocabulary.
        """
        contexts, tokens = np.asarray(contexts).astype(np.int64), np.asarray(tokens).astype(np.int64)
        refuse_outside(contexts, NOTHING, self.vocab)
        refuse_outside(tokens, 0, self.vocab)
        pair = self.bigram.place(contexts[..., :1], contexts[..., 1:])           # [..., 1]
        below = self.bigram.mix(contexts[..., 1:], tokens, self.unigram[tokens])
        return np.log(self.trigram.mix(pair, tokens, below))

    def best(self, context: Sequence[int]) -> int:
        """The most likely token after the last two tokens of `context`."""
        return int(self.row(context).argmax())

    def row(self, context: Sequence[int]) -> np.ndarray:
        """log p of every token [V], float32: the unigram's row shifted, corrected for tokens seen here."""
        last = np.array(last_two(context))
        refuse_outside(last, NOTHING, self.vocab)
        pair = self.bigram.place(last[:1], last[1:])[0]
        row = self.log_unigram + np.log(self.trigram.left[pair] * self.bigram.left[last[1]], dtype=np.float32)
        seen = np.concatenate((self.trigram.after(pair), self.bigram.after(last[1])))
        row[seen] = self.logp_batch(last, seen)
        return row

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        """Rows of log-probabilities [1 + n, V] after the context and after each node."""
        ends = [last_two(tokens)]
        for token, parent in zip(draft.tokens, draft.parents, strict=True):
            ends.append((ends[parent + 1][1], token))
        return Scores(torch.from_numpy(np.stack([self._recent(end) for end in ends])))

    def prefill(self, tokens: tuple[int, ...]) -> None:
        """Nothing to do: an n-gram holds no cache."""

    def fresh(self) -> Ngram:
        return self

    def features(self, tokens: tuple[int, ...]) -> Tensor:
        raise Refusal("an n-gram has no hidden states: features need a network")

    def exit(self, layer: int) -> Ngram:
        raise Refusal("an n-gram has no layers to leave early")


def last_two(context: Sequence[int]) -> tuple[int, int]:
    """The last two tokens, NOTHING where there are none."""
    end = (NOTHING, NOTHING, *context[-2:])
    return end[-2], end[-1]


def refuse_outside(ids: np.ndarray, low: int, vocab: int) -> None:
    if ids.size and (ids.min() < low or ids.max() >= vocab):
        raise ValueError(f"this n-gram knows the token ids 0 to {vocab - 1}, got {ids.min()} to {ids.max()}")


def checked_arrays(arrays: Mapping[str, Array]) -> None:
    """Refuses arrays that are not an n-gram's, or whose lengths contradict each other."""
    bad = Refusal("these arrays are not an n-gram's: count it again with `specdec train ngram`")
    if not set(NAMES) <= set(arrays) or any(arrays[name].ndim != 1 for name in NAMES):
        raise bad
    contexts = vocab = len(arrays["unigram"])
    if not vocab or not np.asarray(arrays["unigram"]).min() > 0:
        raise bad
    for order in ORDERS:
        sizes, tokens, mass = (np.asarray(arrays[f"{order}.{part}"]) for part in ("sizes", "tokens", "mass"))
        if len(sizes) != contexts or not sizes.sum(dtype=np.int64) == len(tokens) == len(mass):
            raise bad
        if len(tokens) and not (tokens.min() >= 0 and tokens.max() < vocab and mass.min() >= 0 and sizes.min() >= 0):
            raise bad
        contexts = len(tokens)
