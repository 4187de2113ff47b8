"""Recordings of a small Markov chain, with the lattices of an optimal drafter.

The distribution of the next token given the last two is known, so the distribution of every slot is computed exactly:
the marginal probability of each token that many steps ahead, over all tokens in between. A network that fills all slots
in one forward can learn nothing better. Nothing is trained, so notebooks can show lattices without a model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lib.cards import Kit
from specdec_lib.models.ngram import Ngram
from specdec_lib.models.replay import Recording
from specdec_lib.models.table import Table
from specdec_lib.recordings.record import record_plain
from specdec_lib.training.data.ngram_counts import count_ngrams
from specdec_lib.types import Lattice

NAME = "diffusion-lm"                              # the trained drafter's name, under which its lattices are kept
CANDIDATES = 16


@dataclass(frozen=True)
class MarkovWorld:
    """`dists [V, V, V]`: the probability of the last token given the first two, float64."""

    dists: Tensor

    @staticmethod
    def random(vocab: int = 64, seed: int = 0) -> MarkovWorld:
        """Random distributions: a quarter depends on the last token alone, the rest on both; no probability is zero."""
        dice = torch.Generator().manual_seed(seed)
        one, two = (torch.softmax(6 * torch.randn(*size, vocab, generator=dice, dtype=torch.float64), -1)
                    for size in ((1, vocab), (vocab, vocab)))
        return MarkovWorld(.25 * one + .75 * two)

    @property
    def vocab(self) -> int:
        return len(self.dists)

    def target(self) -> Table:
        """The language model of this world; after a single token all tokens are equally likely."""
        pairs = {(a, b): row for a, rows in enumerate(self.dists.tolist()) for b, row in enumerate(rows)}
        return Table({(): [1 / self.vocab] * self.vocab, **pairs})

    def lattice(self, tokens: Sequence[int], depth: int, top: int = CANDIDATES) -> Lattice:
        """The likeliest tokens of each of the next `depth` slots by the exact marginal of the slot."""
        pairs = torch.zeros(self.vocab, self.vocab, dtype=torch.float64)         # probability of the two before a slot
        pairs[tokens[-2], tokens[-1]] = 1
        rows = []
        for _ in range(depth):
            pairs = torch.einsum("ab,abc->bc", pairs, self.dists)
            rows.append(pairs.sum(0))
        value, ids = torch.stack(rows).log().topk(min(top, self.vocab), -1)
        return Lattice(ids, value)

    def sample_text(self, tokens: int, seed: int = 0) -> list[int]:
        """A text sampled from the chain."""
        dice, text = random.Random(seed), [0, 1]
        dists = self.dists.tolist()
        while len(text) < tokens:
            text += dice.choices(range(self.vocab), dists[text[-2]][text[-1]])
        return text


def record_markov(world: MarkovWorld, prompt: Sequence[int], tokens: int, depth: int) -> Recording:
    """The world's greedy answer with the lattice of `depth` slots after every prefix, and no drafts."""
    session, row_stats = record_plain(tuple(prompt), Kit(world.target()), tokens)
    lattices = tuple(world.lattice(session.tokens[:n], depth) for n in range(session.prompt, len(session.tokens)))
    about = {"family": "known", "end": [], "vocab": world.vocab, "target": {"name": "a Markov chain"},
             "pieces": {str(token): f" {token}" for token in range(world.vocab)}}
    return Recording(session.tokens, session.prompt, row_stats, {}, {}, about, lattices={NAME: {depth: lattices}})


def markov_recordings(answers: int = 8, tokens: int = 32, depth: int = 8, read: int = 20000,
                      seed: int = 0) -> tuple[dict[str, Recording], Ngram]:
    """Recordings of so many answers, and the trigram of a text of `read` tokens sampled from the same chain."""
    world = MarkovWorld.random(seed=seed)
    dice = random.Random(seed)
    recordings = {f"known {i}": record_markov(world, [dice.randrange(world.vocab) for _ in range(6)], tokens, depth)
                  for i in range(1, answers + 1)}
    return recordings, Ngram(count_ngrams([world.sample_text(read, seed)], world.vocab))
