"""Batches of words and of sentences made of them, each determined by the seed and the number of its step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from torch import Tensor

from specdec_lib.seq2seq.alphabet import BEGIN, PAD, source_ids
from specdec_lib.seq2seq.dictionary import LONGEST, Pronunciations, sentence
from specdec_lib.seq2seq.search import padded
from specdec_lib.training.data.batches import order

WINDOW = 16                                        # batches that are sorted by length together
Pair = tuple[str, tuple[int, ...]]                 # a word and one pronunciation, without END


class SpellingBatch(NamedTuple):
    """`source [B, S]`, the decoder's `inputs [B, n]` from BEGIN on, and the `targets [B, n]` after them; PAD behind."""

    source: Tensor
    inputs: Tensor
    targets: Tensor

    @property
    def tokens(self) -> int:
        return int((self.targets != PAD).sum())


def pairs_of(words: Pronunciations) -> list[Pair]:
    """Every word with every pronunciation."""
    return [(word, one) for word, spoken in words.items() for one in spoken]


@dataclass(frozen=True)
class SpellingBatches:
    """Words at even steps, sentences at odd ones; `words` and `sentences` to a batch."""

    pairs: Sequence[Pair]
    seed: int = 0
    words: int = 256
    sentences: int = 32

    def __call__(self, step: int) -> SpellingBatch:
        """The batch of this step."""
        return batch_of(self.word_pairs(step // 2) if step % 2 == 0 else self.sentence_pairs(step))

    def word_pairs(self, number: int) -> list[tuple[str, tuple[int, ...]]]:
        """Words of similar length: batches of `WINDOW` shuffled batches sorted by length, taken in shuffled order."""
        per_epoch = max(1, len(self.pairs) // self.words)
        epoch, place = divmod(number, per_epoch)
        window = place // WINDOW * WINDOW
        shuffled = order(len(self.pairs), epoch, self.seed)
        chosen = shuffled[window * self.words:min(window + WINDOW, per_epoch) * self.words]
        chosen = sorted(chosen, key=lambda one: (len(self.pairs[one][1]), len(self.pairs[one][0])))
        places = list(range(-(-len(chosen) // self.words)))
        Random(f"{self.seed} {epoch} {window}").shuffle(places)
        start = places[(place - window) % len(places)] * self.words
        return [sentence([self.pairs[one]]) for one in chosen[start:start + self.words]]

    def sentence_pairs(self, step: int) -> list[tuple[str, tuple[int, ...]]]:
        """Random words in a row, all sentences of a batch about as long."""
        random = Random(f"{self.seed} {step}")
        limit = random.randint(16, LONGEST)
        return [sentence(list(some_words(self.pairs, limit, random))) for _ in range(self.sentences)]


def some_words(pairs: Sequence[Pair], limit: int, random: Random) -> Iterator[Pair]:
    """Random words, one at least, until the next would make more than `limit` tokens with the boundaries."""
    size = 0
    while True:
        pair = random.choice(pairs)
        if size and size + len(pair[1]) + 1 > limit:
            return
        yield pair
        size += len(pair[1]) + 1


def batch_of(spelt: Sequence[tuple[str, tuple[int, ...]]]) -> SpellingBatch:
    """The batch of these texts and their tokens, END included."""
    return SpellingBatch(padded([source_ids(text) for text, _ in spelt]),
                         padded([(BEGIN, *tokens[:-1]) for _, tokens in spelt]),
                         padded([tokens for _, tokens in spelt]))
