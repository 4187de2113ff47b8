"""N-gram positions: where each short run of tokens ended, newest last.

Hash maps from the 1- to n-grams of one growing text to their end positions. Reading or taking back a token
costs n dictionary look-ups, so it answers for any session, also one further back in time.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_lib.index.sequences import common_prefix


class NgramPositions:
    """`read(tokens)` makes it stand for exactly these tokens; `after(gram)` says what follows where."""

    def __init__(self, longest: int = 3):
        if longest < 1:
            raise ValueError(f"longest n-gram must be at least 1, got {longest}")
        self.longest = longest
        self.tokens: tuple[int, ...] = ()
        self._after: dict[tuple[int, ...], list[int]] = {}

    def read(self, tokens: tuple[int, ...]) -> None:
        """Stand for these tokens: go back to the common prefix and read the rest."""
        if tokens is self.tokens:
            return
        keep = common_prefix(self.tokens, tokens)
        for stop in range(len(self.tokens), keep, -1):
            for gram in self._grams(self.tokens, stop):
                places = self._after[gram]
                places.pop()
                if not places:
                    del self._after[gram]
        for stop in range(keep + 1, len(tokens) + 1):
            for gram in self._grams(tokens, stop):
                self._after.setdefault(gram, []).append(stop)
        self.tokens = tokens

    def _grams(self, tokens: tuple[int, ...], stop: int) -> list[tuple[int, ...]]:
        return [tokens[stop - n:stop] for n in range(1, min(self.longest, stop) + 1)]

    def after(self, gram: Sequence[int]) -> Sequence[int]:
        """Positions of the tokens that follow this n-gram, oldest first; where it ends the text, its length.

        Empty for one that was not read. The list is the index's own: read it, do not keep it.
        """
        return self._after.get(tuple(gram), ())
