"""What followed the same tokens earlier in a text, as the probability of a token: an n-gram model of that text.

Source: a cache model (Kuhn and De Mori 1990) of the orders 1 to LONGEST, smoothed as by Witten and Bell (1991).
Formula: at t places of the text the last n tokens are those of text and path; u different tokens followed there, c
times the token w. Then p_n(w) = (c + u p_{n-1}(w)) / (t + u), from p_0 = 0 up to the largest n with t > 0. The last
PLACES places count. Cost: no model pass; C code does it for a tree that is grown in one call (`text_counts.h`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from specdec_lib.types import Refusal

LONGEST, PLACES = 6, 64                            # tokens that must agree at most; places that count at most
ROOM = 1024                                        # tokens that the first memory holds
ADDRESS, INT64, DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class CountsRecord(ctypes.Structure):
    """`TextCounts` of the C code."""

    _fields_ = (*((name, ADDRESS) for name in ("text", "before", "last")),
                *((name, INT64) for name in ("length", "known")), ("weight", DOUBLE))


class TextCounts:
    """The counts of the text last read; `weight` is that of a probability in the score of a token."""

    def __init__(self, weight: float):
        if not 0 <= weight < float("inf"):
            raise Refusal(f"counts must be 0 or more and finite, got {weight}")
        self.weight = weight
        self.tokens: tuple[int, ...] = ()
        self.text, self.before = np.zeros(ROOM, np.int64), np.zeros(ROOM, np.int64)
        self.last = np.full(ROOM, -1, np.int64)    # of every token up to the largest of the text
        self.record = CountsRecord(weight=weight)
        self.place()

    def read(self, tokens: tuple[int, ...]) -> None:
        """Sets the text: takes back what it does not share with the one last read, and takes in the rest."""
        if tokens is self.tokens:
            return
        keep = shared(self.tokens, tokens)
        for place in range(len(self.tokens) - 1, keep - 1, -1):
            self.last[self.text[place]] = self.before[place]
        self.reserve(len(tokens), max(tokens[keep:], default=0))
        for place, token in enumerate(tokens[keep:], keep):
            self.text[place], self.before[place], self.last[token] = token, self.last[token], place
        self.tokens = tokens
        self.record.length = len(tokens)

    def reserve(self, length: int, token: int) -> None:
        """Makes room for a text of this length and for this token."""
        if length > len(self.text) or token >= len(self.last):
            more = np.zeros(max(0, 2 * length - len(self.text)), np.int64)
            self.text, self.before = (np.concatenate((one, more)) for one in (self.text, self.before))
            self.last = np.concatenate((self.last, np.full(max(0, 2 * token - len(self.last)) + 1, -1, np.int64)))
            self.place()

    def place(self) -> None:
        """Tells the C code where the numbers lie."""
        record = self.record
        record.text, record.before, record.last = (one.ctypes.data for one in (self.text, self.before, self.last))
        record.known = len(self.last)

    def bonus(self, path: tuple[int, ...], tokens: Sequence[int]) -> list[float]:
        """What joins the logits of these tokens after the text and this path behind it."""
        return [self.weight * chance for chance in self.chances(path, tokens)]

    def chances(self, path: tuple[int, ...], tokens: Sequence[int]) -> list[float]:
        """The probability of each of these tokens after the text, which is not empty, and this path behind it."""
        found, chances = self.earlier(path), [0.0] * len(tokens)
        for agree in range(1, LONGEST + 1):
            nexts = [token for token, length in found if length >= agree]
            if not nexts:
                break
            kinds = len(set(nexts))
            chances = [(nexts.count(token) + kinds * chance) / (len(nexts) + kinds)
                       for token, chance in zip(tokens, chances, strict=True)]
        return chances

    def earlier(self, path: tuple[int, ...]) -> list[tuple[int, int]]:
        """Where the last token stood earlier, newest first: the token that followed, and how many tokens agree."""
        whole = self.tokens + path
        token, length = whole[-1], len(self.tokens)
        places = [place for place in range(len(whole) - 2, length - 1, -1) if whole[place] == token]
        last = self.last[token] if token < len(self.last) else -1
        place = int(last if path else self.before[length - 1])
        while place >= 0 and len(places) < PLACES:
            places.append(place)
            place = int(self.before[place])
        return [(whole[place + 1], agreeing(whole, place)) for place in places[:PLACES]]


def agreeing(tokens: Sequence[int], place: int) -> int:
    """How many tokens up to this place, LONGEST at most, are the last ones of the text; the first one agrees."""
    agree = 1
    while agree < LONGEST and agree <= place and tokens[place - agree] == tokens[-1 - agree]:
        agree += 1
    return agree


def shared(old: tuple[int, ...], new: tuple[int, ...]) -> int:
    """The length of the common prefix."""
    if new[:len(old)] == old:
        return len(old)
    return next(place for place, pair in enumerate(zip(old, (*new, -1), strict=False)) if pair[0] != pair[1])
