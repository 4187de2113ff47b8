"""Toy words: sessions from plain text, so that a method can be shown on a sentence without any model.

A `Word` is a token id that carries its text, so tokens that a drafter copies from a toy session keep their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from specdec_lib.models.table import Table
from specdec_lib.types import Session

Names = Callable[[int], str]


class Word(int):
    """A token id with its text; otherwise it equals the plain id."""

    text: str

    def __new__(cls, token: int, text: str):
        word = super().__new__(cls, token)
        word.text = text
        return word

    def __getnewargs__(self):
        return int(self), self.text


@dataclass(frozen=True)
class Vocabulary:
    """Words numbered in order; a callable from token id to word, so it can be passed as `names`."""

    words: tuple[str, ...]

    @staticmethod
    def of(*texts: str) -> Vocabulary:
        """The different words of these texts, split at blanks, in order of appearance."""
        return Vocabulary(tuple(dict.fromkeys(word for text in texts for word in text.split())))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: token for token, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __call__(self, token: int) -> str:
        return self.words[token]

    def tokens(self, text: str) -> tuple[Word, ...]:
        """The tokens of a text; ValueError names the first word that is not in the vocabulary."""
        missing = [word for word in text.split() if word not in self._ids]
        if missing:
            raise ValueError(f"the word {missing[0]!r} is not in this vocabulary of {len(self)}")
        return tuple(Word(self._ids[word], word) for word in text.split())


def words(text: str, room: int = 16, vocabulary: Vocabulary | None = None, sampling=None) -> Session:
    """A toy session whose prompt is this text, each word a token, numbered by `vocabulary` or else by order."""
    tokens = (vocabulary or Vocabulary.of(text)).tokens(text)
    return Session(tokens, len(tokens), room, sampling=sampling, id="toy")


def toy_model(text: str, vocabulary: Vocabulary, order: int = 1, doubt: float = 0.1) -> Table:
    """The n-gram model of a text: the next word given the last `order` words, with `doubt` added to every count.

    A small doubt gives the observed words nearly all probability. It also has every shorter context.
    """
    if order < 0 or doubt <= 0:
        raise ValueError(f"a toy model needs order >= 0 and doubt > 0, got {order} and {doubt}")
    tokens = vocabulary.tokens(text)
    counts: dict[tuple[int, ...], list[float]] = {(): [doubt] * len(vocabulary)}
    for place, token in enumerate(tokens):
        for n in range(min(order, place) + 1):
            row = counts.setdefault(tuple(map(int, tokens[place - n:place])), [doubt] * len(vocabulary))
            row[token] += 1
    return Table({context: [count / sum(row) for count in row] for context, row in counts.items()})


def naming(names: Names | None, tokens: Iterable[int]) -> Names:
    """`names`, or else the texts of the Words among `tokens`; an unknown id is shown as #id."""
    if names is not None:
        return lambda token: names(int(token))
    known = {int(token): token.text for token in tokens if isinstance(token, Word)}
    return lambda token: token.text if isinstance(token, Word) else known.get(int(token), f"#{int(token)}")
