"""All positions: every earlier place at which the end of a text stands, and how far the two agree.

The n-gram positions name the places; a look backwards over slices of at most 64 tokens says how many tokens agree
there. A look-up costs a comparison for each place that is asked for, whatever the length of the text.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from specdec_lib.index.ngram_positions import NgramPositions
from specdec_lib.index.sequences import common_prefix

DEEPEST = 64                                       # matches are told apart up to this length, as in a static store


class TextPosition(NamedTuple):
    """An earlier occurrence: `start` is the position that follows it, `length` the tokens that agree before it."""

    start: int
    length: int


class AllPositions:
    """Answers for any text: `find(tokens, query, most)` reads what is new of it and lists the places."""

    def __init__(self, positions: NgramPositions):
        self.positions = positions

    def find(self, tokens: tuple[int, ...], query: int, most: int = 64) -> list[TextPosition]:
        """The `most` newest places whose last `query` tokens are those of the text; its own end is none of them.

        A query longer than the index counts is looked up by the longest n-gram, then compared.
        """
        if query < 1 or most < 1:
            raise ValueError(f"query and most are at least 1, got {query} and {most}")
        if query >= len(tokens):
            return []
        self.positions.read(tokens)
        starts = self.positions.after(tokens[-min(query, self.positions.longest):])
        newest = islice(reversed(starts), 1, None)                     # the very newest is the end of the text
        deepest = max(DEEPEST, query)
        end = tokens[:-deepest - 1:-1]                                 # backwards
        found = (TextPosition(start, common_prefix(end, tokens[max(0, start - deepest):start][::-1]))
                 for start in newest)
        return list(islice((place for place in found if place.length >= query), most))
