"""Static store: a corpus of token ids on disk, searched for the longest suffix of a session.

Source: Manber and Myers 1990 (suffix arrays, prefix doubling); the static half of SAM-Decoding (Hu et al. 2024). One
file: a header of 512 bytes, the corpus *backwards*, and the sorted order of its suffixes. Because the text is
backwards, those are the contexts that end at each position. The file is memory-mapped and read-only, so any number of
processes share one copy. Contexts are compared up to 64 tokens, so a look-up is a binary search of log2(n) steps over
slices of at most 64 tokens (big-endian, so that bytes compare as tokens do), whatever the session's length. What
followed the occurrences of a suffix is counted in at most 512 of them, spread evenly over their sorted order.
"""

from __future__ import annotations

import json
import mmap
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specdec_lib.index.sequences import Suffix
from specdec_lib.types import Refusal

MAGIC, HEADER, DEEPEST = "specdec-static-store-1", 512, 64
GAP = 0xFFFFFFFF                                   # separates documents and matches nothing
COUNTED = 512                                      # occurrences in which followers are counted; more are a sample


class CorpusMatch(NamedTuple):
    """The longest match: its length, and the corpus positions after its first and its last occurrence."""

    length: int = 0
    first: int = 0
    recent: int = 0
    other: bool = False                            # from other texts: right less often than a copy of the text itself


class StaticStore:
    """An existing store. Raises Refusal for a file that is missing, cut short or damaged."""

    def __init__(self, path: str | Path):
        head, self._bytes = _open(Path(path))
        self.size: int = head["tokens"]            # with one gap after each document
        self.vocab: int = head["vocab"]            # largest id + 1
        self._order = memoryview(self._bytes)[HEADER + 4 * self.size:].cast("I")
        self._text = np.frombuffer(self._bytes, ">u4", self.size, HEADER)

    def find(self, tokens: tuple[int, ...]) -> CorpusMatch:
        """The longest suffix of `tokens`, at most 64 tokens, that occurs in the corpus."""
        for length, ends in self.suffixes(tokens):
            return CorpusMatch(length, self.size - int(ends.max()), self.size - int(ends.min()), True)
        return CorpusMatch()

    def suffixes(self, tokens: tuple[int, ...]) -> Iterator[Suffix[np.ndarray]]:
        """The suffixes of `tokens` that occur in the corpus, longest first, those at the same places as one.

        The state of a suffix is where its occurrences end in the backwards text, in sorted order of their contexts.
        """
        query = np.array(tokens[:-DEEPEST - 1:-1], dtype=">u4").tobytes()
        low = high = bisect_left(self._order, query, key=self._slice)
        while True:
            length = max(_common(query, self._slice(self._order[i])) for i in (low - 1, high) if 0 <= i < self.size)
            if length == 0:
                return
            key = lambda position: self._slice(position, length)                 # noqa: E731, B023
            low = bisect_left(self._order, query[:4 * length], hi=low, key=key)
            high = bisect_right(self._order, query[:4 * length], lo=high, key=key)
            yield Suffix(length, np.frombuffer(self._order, "u4")[low:high])
            if high - low == self.size:
                return

    def count(self, state: np.ndarray) -> int:
        """How many of a state's occurrences are counted."""
        return len(sample(state))

    def ranked(self, state: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
        """What followed the counted occurrences, as (how often, token, state), the most frequent first."""
        ends = sample(state) - 1
        after = self._text[ends]
        for token, times in Counter(after.tolist()).most_common():
            yield times, token, ends[after == token]

    def following(self, start: int, n: int) -> tuple[int, ...]:
        """At most `n` tokens of the corpus from `start` on, up to the end of the document."""
        stop = self.size - start
        tokens = self._text[max(0, stop - n):stop][::-1].tolist()
        return tuple(tokens[:tokens.index(GAP)] if GAP in tokens else tokens)

    def _slice(self, position: int, tokens: int = DEEPEST) -> bytes:
        start = HEADER + 4 * position
        return self._bytes[start:min(start + 4 * tokens, HEADER + 4 * self.size)]


def sample(ends: np.ndarray) -> np.ndarray:
    """At most `COUNTED` of these, spread evenly."""
    return ends[::-(-len(ends) // COUNTED)] if len(ends) else ends


def _common(one: bytes, other: bytes) -> int:
    """Number of leading tokens that two slices share."""
    n = 0
    while n < len(one) // 4 and one[4 * n:4 * n + 4] == other[4 * n:4 * n + 4]:
        n += 1
    return n


def open_store(path: str | Path) -> StaticStore:
    """The store at `path`, checked once per process and file; Refusal as StaticStore."""
    try:
        stat = Path(path).stat()
    except OSError:
        raise Refusal(f"there is no store at {path}: `specdec store` makes one") from None
    return _kept(str(path), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)
def _kept(path: str, changed: int, size: int) -> StaticStore:
    return StaticStore(path)


def _open(path: Path) -> tuple[dict, mmap.mmap]:
    bad = Refusal(f"{path} is not a whole static index: build it again")
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise Refusal(f"there is no store at {path}: `specdec store` makes one") from None
    except (OSError, ValueError):                  # ValueError: an empty file cannot be mapped
        raise bad from None
    try:
        head = json.loads(data[:HEADER])
        whole = head["magic"] == MAGIC and len(data) == HEADER + 8 * head["tokens"] and head["vocab"] >= 0
        whole = whole and head["tokens"] > 0
        whole = whole and zlib.crc32(memoryview(data)[HEADER:]) == head["crc32"]
    except (ValueError, KeyError, TypeError):
        raise bad from None
    if not whole:
        raise bad
    return head, data
