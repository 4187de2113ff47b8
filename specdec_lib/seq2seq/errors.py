"""Phoneme and word error rates, against the nearest of several right pronunciations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specdec_lib.seq2seq.alphabet import BOUNDARY, END


class Errors(NamedTuple):
    """Edits, length of the reference that they are counted against, wrong words, and words."""

    edits: int = 0
    length: int = 0
    wrong: int = 0
    words: int = 0

    def plus(self, other: Errors) -> Errors:
        return Errors(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def phoneme_rate(self) -> float:
        """Substitutions, insertions and deletions per phoneme of the reference; boundaries count as phonemes."""
        return self.edits / self.length

    @property
    def word_rate(self) -> float:
        """Share of words that are not pronounced as a reference says, at their place in the sentence."""
        return self.wrong / self.words


def edit_distance(one: Sequence[int], two: Sequence[int]) -> int:
    """Levenshtein's distance: fewest substitutions, insertions and deletions that turn one into the other."""
    row = list(range(len(two) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(two, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def errors(output: Sequence[int], targets: Sequence[Sequence[int]]) -> Errors:
    """The errors of one output against the nearest target; END does not count.

    Words are compared by their alignment: a sentence with a missing boundary has both its words wrong, no more.
    """
    said = [token for token in output if token != END]
    right = [[token for token in target if token != END] for target in targets]
    edits, nearest = min((edit_distance(said, target), place) for place, target in enumerate(right))
    reference = words(right[nearest])
    numbers = {word: number for number, word in enumerate(dict.fromkeys([*reference, *words(said)]))}
    wrong = edit_distance([numbers[word] for word in words(said)], [numbers[word] for word in reference])
    return Errors(edits, len(right[nearest]), wrong, len(reference))


def words(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    """The words between the boundaries."""
    out: list[list[int]] = [[]]
    for token in tokens:
        if token == BOUNDARY:
            out.append([])
        else:
            out[-1].append(token)
    return [tuple(word) for word in out]


def total(many: Sequence[Errors]) -> Errors:
    """The sum over outputs."""
    out = Errors()
    for one in many:
        out = out.plus(one)
    return out
