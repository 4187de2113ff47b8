"""Counting an n-gram: an interpolated Kneser-Ney trigram of token sequences, as the arrays that `models.ngram` reads.

Source: Kneser and Ney 1995; the interpolated form with three discounts per order of Chen and Goodman 1998. The
lower orders count in how many different contexts a token was seen, not how often. One sort per order; no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def count_ngrams(sequences: Iterable[Sequence[int]], vocab: int, least: int = 2) -> dict[str, np.ndarray]:
    """The trigram of these sequences of token ids below `vocab`; no n-gram crosses from one sequence to the next.

    Bigrams and trigrams seen fewer than `least` times are dropped, and their mass goes to the order below, so every
    distribution sums to one. Returns `unigram [V]` (the lowest order), and for `bigram` and `trigram`, sorted: `.sizes`
    (how many tokens are kept after each context: after token u, after bigram i), `.tokens`, and `.mass`, the discounted
    share of a context that is a token's own. About 6 bytes a trigram, 8 a bigram. ValueError for
    ids outside the vocabulary or where there is nothing to count.
    """
    text, place = flatten_sequences(sequences, vocab)
    pairs, pair_counts = np.unique(packed_ngrams(text, place, 2, vocab), return_counts=True)
    triples, triple_counts = np.unique(packed_ngrams(text, place, 3, vocab), return_counts=True)
    tails, befores = np.unique(triples % vocab ** 2, return_counts=True)
    different = np.zeros(len(pairs), dtype=np.int64)           # different tokens seen before this pair
    different[np.searchsorted(pairs, tails)] = befores
    kept = pairs[pair_counts >= least]
    pair_mass = discounted_shares(different, pairs // vocab)[pair_counts >= least]
    often = triple_counts >= least
    triple_mass = discounted_shares(triple_counts, np.searchsorted(pairs, triples // vocab))[often]
    places = np.searchsorted(kept, triples[often] // vocab)    # the bigram of a frequent trigram is kept, too
    small = np.uint16 if vocab <= np.iinfo(np.uint16).max else np.int32
    return {"unigram": lowest_order(np.bincount(pairs % vocab, minlength=vocab), text).astype(np.float32),
            "bigram.sizes": np.bincount(kept // vocab, minlength=vocab).astype(small),
            "bigram.tokens": (kept % vocab).astype(small), "bigram.mass": pair_mass.astype(np.float32),
            "trigram.sizes": np.bincount(places, minlength=len(kept)).astype(small),
            "trigram.tokens": (triples[often] % vocab).astype(small), "trigram.mass": triple_mass.astype(np.float32)}


def flatten_sequences(sequences: Iterable[Sequence[int]], vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """All tokens concatenated [n], and the index of the sequence that each belongs to [n]."""
    pieces = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
    text = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)
    if not len(text):
        raise ValueError("an n-gram needs at least one token to count")
    if text.min() < 0 or text.max() >= vocab:
        raise ValueError(f"token ids must lie between 0 and {vocab - 1}, got {text.min()} to {text.max()}")
    return text, np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])


def packed_ngrams(text: np.ndarray, place: np.ndarray, n: int, vocab: int) -> np.ndarray:
    """Every n-gram within a sequence as one integer, its first token the most significant."""
    key = np.zeros(max(0, len(text) - n + 1), dtype=np.int64)
    for i in range(n):
        key = key * vocab + text[i:i + len(key)]
    return key[place[:len(key)] == place[n - 1:]]


def discounts(counts: np.ndarray) -> np.ndarray:
    """The discounts of counts 0, 1, 2 and 3 or more, from the counts of counts (Chen and Goodman 1998).

    A corpus too small for all of n1 .. n4 gets the single discount n1 / (n1 + 2 n2), or one half where that is
    undefined or discounts everything.
    """
    once, twice, thrice, four = (np.count_nonzero(counts == n) for n in range(1, 5))
    one = once / (once + 2 * twice) if once and twice else 0.5
    if once and twice and thrice and four:
        three = np.array([1 - 2 * one * twice / once, 2 - 3 * one * thrice / twice, 3 - 4 * one * four / thrice])
        if (three > 0).all() and (three < (1, 2, 3)).all():
            return np.concatenate(([0.0], three))
    return np.array([0.0, one, one, one])


def discounted_shares(counts: np.ndarray, context: np.ndarray) -> np.ndarray:
    """The mass of each n-gram [n]: its discounted count over the total of its context; sums to below one."""
    total = np.bincount(context, weights=counts)[context] if len(counts) else counts
    return (counts - discounts(counts)[np.minimum(counts, 3)]) / np.maximum(total, 1)


def lowest_order(different: np.ndarray, text: np.ndarray) -> np.ndarray:
    """The lowest order's distribution [V]: by how many different tokens came before; the rest is spread evenly.

    Where no token has one before it (sequences of length one), by how often each was seen.
    """
    counts = different if different.any() else np.bincount(text, minlength=len(different))
    own = discounted_shares(counts, np.zeros(len(counts), dtype=np.int64))
    return own + (1 - own.sum()) / len(counts)
