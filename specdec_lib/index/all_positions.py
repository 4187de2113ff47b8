"""All positions: every earlier position at which the end of a text occurred, and how many tokens match there.

The n-gram positions give the candidates; comparing slices of at most 64 tokens backwards gives the match length. A
look-up costs one comparison per requested position, whatever the length of the text.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from specdec_lib.index.ngram_positions import NgramPositions
from specdec_lib.index.sequences import common_prefix

DEEPEST = 64                                       # match lengths are counted up to this, as in a static store


class TextPosition(NamedTuple):
    """An earlier occurrence: `start` is the position after it, `length` the matching tokens before `start`."""

    start: int
    length: int


class AllPositions:
    """Answers for any text: `find(tokens, query, most)` reads its new tokens and lists the positions."""

    def __init__(self, positions: NgramPositions):
        self.positions = positions

    def find(self, tokens: tuple[int, ...], query: int, most: int = 64) -> list[TextPosition]:
        """The `most` newest positions after the text's last `query` tokens, without the end of the text itself.

        A query longer than the index's n-grams is looked up by the longest n-gram, then compared.
        """
        if query < 1 or most < 1:
            raise ValueError(f"query and most must be at least 1, got {query} and {most}")
        if query >= len(tokens):
            return []
        self.positions.read(tokens)
        starts = self.positions.after(tokens[-min(query, self.positions.longest):])
        newest = islice(reversed(starts), 1, None)                     # the very newest is the end of the text
        deepest = max(DEEPEST, query)
        end = tokens[:-deepest - 1:-1]                                 # backwards
        found = (TextPosition(start, common_prefix(end, tokens[max(0, start - deepest):start][::-1]))
                 for start in newest)
        return list(islice((position for position in found if position.length >= query), most))
