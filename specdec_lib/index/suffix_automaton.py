"""Suffix automaton of one growing text: its longest suffix that occurred earlier, and where.

Source: Blumer et al. 1985 for the online construction; Hu et al. 2024 (SAM-Decoding) for drafting from it. A state is a
set of substrings with the same end positions. Reading a token costs amortised constant time, and so does taking it
back: every change is logged, so the automaton answers for any session, also for an earlier one.

The first end position of a state never changes. The most recent one and the number of occurrences change at each token
for all suffixes of the text: these are the ancestors of the newest state along the suffix links, and the `climb`
longest of them are updated. So both are exact as long as no suffix of the text has more than `climb` repeated suffixes
with different end positions (only long loops do: text of period d repeated for d x climb tokens). Beyond that the
position may be an older occurrence, and the number too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from specdec_lib.index.sequences import Suffix, common_prefix


class Repeat(NamedTuple):
    """The longest suffix that occurs earlier: its length, and the positions after its first and latest occurrence."""

    length: int = 0
    first: int = 0                                 # position of the token that follows the first occurrence
    recent: int = 0                                # the same for the latest one before the end


class SuffixAutomaton:
    """`read(tokens)` sets the text; `repeat` is its longest suffix that occurs earlier."""

    def __init__(self, climb: int = 64):
        self.climb = climb
        self.tokens: tuple[int, ...] = ()
        self._next: list[dict[int, int]] = [{}]    # per state: token -> state
        self._link, self._length = [-1], [0]
        self._first, self._recent = [-1], [-1]     # end positions, inclusive
        self._count = [0]                          # occurrences, one at the end of the text included
        self._state = [0]                          # per prefix: the state of the whole of it
        self._repeat = [Repeat()]                  # per prefix
        self._undo: list[tuple] = []               # per token: the changes of reading it
        self._ranked: dict[int, Sequence[tuple[int, int, int]]] = {}      # by state, see `ranked`

    @property
    def repeat(self) -> Repeat:
        """The longest suffix of the text that also ends earlier; length 0 if its last token is new."""
        return self._repeat[-1]

    def read(self, tokens: tuple[int, ...]) -> Repeat:
        """Set the text to these tokens: go back to the common prefix, read the rest, return `repeat`."""
        if tokens is not self.tokens:
            self._ranked.clear()
            keep = common_prefix(self.tokens, tokens)
            for end in range(len(self.tokens) - 1, keep - 1, -1):
                self._take_back(self.tokens[end])
            for end in range(keep, len(tokens)):
                self._push(end, tokens[end])
            self.tokens = tokens
        return self.repeat

    def find(self, tokens: tuple[int, ...]) -> Repeat:
        """The longest suffix of another text that occurs anywhere in the text read; one or more steps per token."""
        length, state = self._longest(tokens)
        return Repeat(length, self._first[state] + 1, self._recent[state] + 1)

    def repeated(self) -> Iterator[Suffix[int]]:
        """The suffixes of the text that occur earlier as well, longest first, those at the same places as one."""
        state = self._link[self._state[-1]]
        return self._upwards(Suffix(self._length[max(state, 0)], state))

    def suffixes(self, tokens: tuple[int, ...]) -> Iterator[Suffix[int]]:
        """The suffixes of another text that occur in the text read, longest first, those at the same places as one."""
        return self._upwards(self._longest(tokens))

    def count(self, state: int) -> int:
        """How often the substrings of a state occur, one at the end of the text included."""
        return self._count[state]

    def followers(self, state: int) -> Mapping[int, int]:
        """The tokens that follow the substrings of a state somewhere in the text, and the state of each with it."""
        return self._next[state]

    def ranked(self, state: int) -> Sequence[tuple[int, int, int]]:
        """What `followers` has, as (how often, token, state), the most frequent first; kept until the text changes."""
        if state not in self._ranked:
            count = self._count
            found = [(count[after], token, after) for token, after in self._next[state].items()]
            self._ranked[state] = sorted(found, key=itemgetter(0), reverse=True)
        return self._ranked[state]

    def _upwards(self, suffix: Suffix[int]) -> Iterator[Suffix[int]]:
        while suffix.state > 0:
            yield suffix
            state = self._link[suffix.state]
            suffix = Suffix(self._length[state], state)

    def _longest(self, tokens: tuple[int, ...]) -> Suffix[int]:
        nexts, link, state, length = self._next, self._link, 0, 0
        for token in tokens:
            while state and token not in nexts[state]:
                state = link[state]
                length = self._length[state]
            if token in nexts[state]:
                state, length = nexts[state][token], length + 1
        return Suffix(length, state)

    def _new_state(self, next: dict[int, int], link: int, length: int, first: int, recent: int, count: int) -> int:
        self._next.append(next)
        self._link.append(link)
        self._length.append(length)
        self._first.append(first)
        self._recent.append(recent)
        self._count.append(count)
        return len(self._link) - 1

    def _push(self, end: int, token: int) -> None:
        nexts, link, length = self._next, self._link, self._length
        new = self._new_state({}, 0, end + 1, end, end, 1)
        added, moved, split, p = [], [], -1, self._state[-1]
        while p != -1 and token not in nexts[p]:
            nexts[p][token] = new
            added.append(p)
            p = link[p]
        if p != -1:
            q = nexts[p][token]
            if length[p] + 1 < length[q]:          # q also has longer substrings: split off the shorter
                split = q
                q = self._new_state(dict(nexts[split]), link[split], length[p] + 1, self._first[split],
                                    self._recent[split], self._count[split])
                while p != -1 and nexts[p].get(token) == split:
                    nexts[p][token] = q
                    moved.append(p)
                    p = link[p]
                link[split] = q
            link[new] = q
        self._state.append(new)
        self._undo.append((added, moved, split, self._stamp(link[new], end)))

    def _stamp(self, longest: int, end: int) -> list[int]:
        """Record the repeat, then count its suffixes once more, lately at `end`; returns their positions before."""
        link, recent, count = self._link, self._recent, self._count
        self._repeat.append(Repeat(self._length[longest], self._first[longest] + 1, recent[longest] + 1))
        before, state = [], longest
        while state > 0 and len(before) < self.climb:
            before.append(recent[state])
            recent[state] = end
            count[state] += 1
            state = link[state]
        return before

    def _take_back(self, token: int) -> None:
        nexts, link = self._next, self._link
        added, moved, split, before = self._undo.pop()
        new = self._state.pop()
        self._repeat.pop()
        state = link[new]
        for mark in before:
            self._recent[state] = mark
            self._count[state] -= 1
            state = link[state]
        for p in moved:
            nexts[p][token] = split
        if split != -1:
            link[split] = link[link[split]]        # skips the state that was split off, removed below
        for p in added:
            del nexts[p][token]
        for values in (nexts, link, self._length, self._first, self._recent, self._count):
            del values[new:]
