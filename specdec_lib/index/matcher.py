"""Matcher: the longest match of a session's suffix, in the session itself or in a corpus.

Source: SAM-Decoding (Hu et al. 2024). A match in the corpus counts as `bias` tokens shorter than it is, since
the session's own text is the better witness; a tie goes to the session.
"""

from __future__ import annotations

from typing import NamedTuple

from specdec_lib.index.sequences import continuation
from specdec_lib.index.static_store import StaticStore, open_store
from specdec_lib.index.suffix_automaton import SuffixAutomaton
from specdec_lib.types import Kit, Refusal

DYNAMIC, STATIC = "dynamic", "static"


class SuffixMatch(NamedTuple):
    """The longest match: `worth` is its length less the bias; it is followed at `first` and `recent`."""

    length: int = 0
    first: int = 0
    recent: int = 0
    origin: str = DYNAMIC
    worth: int = 0


class Matcher:
    """Reads any session; `find(tokens)` and `following(match, start, n)` answer for the same tokens."""

    def __init__(self, store: StaticStore | None = None, bias: int = 5):
        self.store, self.bias = store, bias
        self.automaton = SuffixAutomaton()
        self._asked: tuple[tuple[int, ...], SuffixMatch] = ((), SuffixMatch())

    def find(self, tokens: tuple[int, ...]) -> SuffixMatch:
        """The match worth most; length 0 where the last token stands nowhere else."""
        if tokens is not self._asked[0]:
            self._asked = tokens, self._longest(tokens)
        return self._asked[1]

    def _longest(self, tokens: tuple[int, ...]) -> SuffixMatch:
        own = self.automaton.read(tokens)
        if self.store is not None:
            there = self.store.find(tokens)
            worth = there.length - self.bias
            if there.length and (worth > own.length or not own.length):
                return SuffixMatch(*there, STATIC, worth)
        return SuffixMatch(*own, DYNAMIC, own.length)

    def following(self, tokens: tuple[int, ...], match: SuffixMatch, n: int,
                  mode: str = "recent") -> tuple[int, ...]:
        """What followed the match at its `first` or most `recent` place, `n` tokens at most."""
        start = match.first if mode == "first" else match.recent
        if not match.length:
            return ()
        return self.store.following(start, n) if match.origin == STATIC else continuation(tokens, start, n)


def shared_matcher(kit: Kit) -> Matcher:
    """The one matcher of a decode, over `kit.store` if there is one; Refusal if that has more vocabulary."""
    def make() -> Matcher:
        store = open_store(kit.store) if kit.store else None
        if store is not None and kit.facts.vocab and store.vocab > kit.facts.vocab:
            raise Refusal(f"{kit.store} holds token ids up to {store.vocab - 1}, the target knows"
                          f" {kit.facts.vocab}: build the static index with the target's own tokenizer")
        return Matcher(store)

    return kit.index("matcher", make)
