"""Matcher: the longest match of a session's suffix, in the session itself or in a corpus.

Source: SAM-Decoding (Hu et al. 2024). A match in the corpus counts as `bias` tokens shorter than it is, because the
session's own text predicts better; a tie goes to the session.
"""

from __future__ import annotations

from typing import NamedTuple

from specdec_lib.cards import Kit
from specdec_lib.index.sequences import continuation
from specdec_lib.index.static_store import StaticStore, open_store
from specdec_lib.index.suffix_automaton import SuffixAutomaton
from specdec_lib.types import Refusal

DYNAMIC, STATIC = "dynamic", "static"


class SuffixMatch(NamedTuple):
    """The longest match: `worth` is its length minus the bias; its continuations start at `first` and `recent`."""

    length: int = 0
    first: int = 0
    recent: int = 0
    origin: str = DYNAMIC
    worth: int = 0


class Matcher:
    """Answers for any session: `find(tokens)` gives the match, `following(tokens, match, n)` its continuation."""

    def __init__(self, store: StaticStore | None = None, bias: int = 5):
        self.store, self.bias = store, bias
        self.automaton = SuffixAutomaton()
        self._last: tuple[tuple[int, ...], SuffixMatch] = ((), SuffixMatch())

    def find(self, tokens: tuple[int, ...]) -> SuffixMatch:
        """The match with the highest worth; length 0 where the last token occurs nowhere else."""
        if tokens is not self._last[0]:
            self._last = tokens, self._longest(tokens)
        return self._last[1]

    def _longest(self, tokens: tuple[int, ...]) -> SuffixMatch:
        own = self.automaton.read(tokens)
        if self.store is not None:
            corpus = self.store.find(tokens)
            worth = corpus.length - self.bias
            if corpus.length and (worth > own.length or not own.length):
                return SuffixMatch(*corpus[:3], STATIC, worth)
        return SuffixMatch(*own, DYNAMIC, own.length)

    def following(self, tokens: tuple[int, ...], match: SuffixMatch, n: int,
                  mode: str = "recent") -> tuple[int, ...]:
        """What followed the match at its `first` or most `recent` position, at most `n` tokens."""
        start = match.first if mode == "first" else match.recent
        if not match.length:
            return ()
        if match.origin == STATIC:
            assert self.store is not None          # the match is its own
            return self.store.following(start, n)
        return continuation(tokens, start, n)


def shared_matcher(kit: Kit) -> Matcher:
    """The one matcher of a decode, over `kit.store` if there is one; Refusal if its vocabulary is larger."""
    def make() -> Matcher:
        store = open_store(kit.store) if kit.store else None
        if store is not None and kit.facts.vocab and store.vocab > kit.facts.vocab:
            raise Refusal(f"{kit.store} has token ids up to {store.vocab - 1}, the target a vocabulary of"
                          f" {kit.facts.vocab}: build the static index with the target's own tokenizer")
        return Matcher(store)

    return kit.index("matcher", make)
