"""N-gram positions: where each short n-gram ended, newest last.

Hash maps from the 1- to n-grams of one growing text to their end positions. Reading or taking back a token costs n
dictionary look-ups, so the index answers for any session, also for an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_lib.index.sequences import common_prefix


class NgramPositions:
    """`read(tokens)` sets the text; `after(gram)` gives the positions after an n-gram."""

    def __init__(self, longest: int = 3):
        if longest < 1:
            raise ValueError(f"the longest n-gram must be at least 1, got {longest}")
        self.longest = longest
        self.tokens: tuple[int, ...] = ()
        self._after: dict[tuple[int, ...], list[int]] = {}

    def read(self, tokens: tuple[int, ...]) -> None:
        """Set the text to these tokens: go back to the common prefix and read the rest."""
        if tokens is self.tokens:
            return
        keep = common_prefix(self.tokens, tokens)
        for stop in range(len(self.tokens), keep, -1):
            for gram in self._grams(self.tokens, stop):
                positions = self._after[gram]
                positions.pop()
                if not positions:
                    del self._after[gram]
        for stop in range(keep + 1, len(tokens) + 1):
            for gram in self._grams(tokens, stop):
                self._after.setdefault(gram, []).append(stop)
        self.tokens = tokens

    def _grams(self, tokens: tuple[int, ...], stop: int) -> list[tuple[int, ...]]:
        return [tokens[stop - n:stop] for n in range(1, min(self.longest, stop) + 1)]

    def after(self, gram: Sequence[int]) -> Sequence[int]:
        """Positions of the tokens after this n-gram, oldest first; the text's length where the n-gram ends the text.

        Empty for an unknown n-gram. The list belongs to the index and changes with it: read it, do not keep it.
        """
        return self._after.get(tuple(gram), ())
