"""Growing store: earlier answers, asked like a corpus: where does the longest suffix of a session stand in them?

Source: the dynamic half of SAM-Decoding (Hu et al. 2024), carried from prompt to prompt. The answers lie one after the
other in one suffix automaton, a gap behind each, so no match and no copy runs from one into the next. A look-up walks
the last 64 tokens of the session, whatever the number of answers; reading a token in costs amortised constant time and
is done at the first look-up that follows, so that whoever gains by it pays for it.

It lives in `kit.memory` and grows between decodes alone: what a decode says is put aside while it runs, as far as it
has come, and joins the answers when the next decode is set up. So a decode that was stopped half-way leaves what it had
said, and within one decode every question has one answer. One decode at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from specdec_lib.index.static_store import DEEPEST, GAP, CorpusMatch, StaticStore
from specdec_lib.index.suffix_automaton import SuffixAutomaton
from specdec_lib.types import Kit, Refusal

MOST = 100_000                                     # about a hundred megabytes: an automaton takes 0.9 KB per token


class AnswerStore:
    """Starts empty. Where more than `most` tokens would stand in it, it begins again with the newest half of that."""

    def __init__(self, most: int = MOST):
        if most < 2:
            raise Refusal(f"a store of earlier answers holds at least 2 tokens, got {most}")
        self.most = most
        self._automaton = SuffixAutomaton()
        self._heard: tuple[int, ...] = ()          # by the decode under way
        self._waiting: list[tuple[int, ...]] = []  # added and not yet read in

    @property
    def size(self) -> int:
        """Tokens that stand in it, one gap after each answer included."""
        self._read_in()
        return len(self._automaton.tokens)

    def add(self, answer: Sequence[int]) -> None:
        """One more document; an empty one is none."""
        if len(answer):
            self._waiting.append((*answer, GAP))

    def hear(self, so_far: tuple[int, ...]) -> None:
        """What the decode under way has said until now; it replaces what was heard before and is not found yet."""
        self._heard = so_far

    def settle(self) -> AnswerStore:
        """The decode is over, or was given up: what was heard of it is an earlier answer from now on."""
        self.add(self._heard)
        self._heard = ()
        return self

    def find(self, tokens: tuple[int, ...]) -> CorpusMatch:
        """The longest suffix of `tokens`, of 64 at most, that stands in an earlier answer."""
        self._read_in()
        return CorpusMatch(*self._automaton.find(tokens[-DEEPEST:]))

    def following(self, start: int, n: int) -> tuple[int, ...]:
        """At most `n` tokens from `start` on, not past the end of their answer."""
        tokens = self._automaton.tokens[start:start + n]
        return tokens[:tokens.index(GAP)] if GAP in tokens else tokens

    def _read_in(self) -> None:
        if not self._waiting:
            return
        text = tuple(chain(self._automaton.tokens, *self._waiting))
        self._waiting = []
        if len(text) > self.most:                  # half, so that this happens once in as many tokens as it reads
            self._automaton, text = SuffixAutomaton(), text[-(self.most // 2):]
        self._automaton.read(text)


class PromptAndAnswers(NamedTuple):
    """A corpus with the earlier answers behind it, as one store: the longer match counts, a tie is the answers'."""

    corpus: StaticStore
    answers: AnswerStore

    def find(self, tokens: tuple[int, ...]) -> CorpusMatch:
        own, there = self.answers.find(tokens), self.corpus.find(tokens)
        if own.length < there.length or not own.length:
            return there
        return CorpusMatch(own.length, self.corpus.size + own.first, self.corpus.size + own.recent)

    def following(self, start: int, n: int) -> tuple[int, ...]:
        behind = start - self.corpus.size
        return self.answers.following(behind, n) if behind > 0 else self.corpus.following(start, n)


Store = StaticStore | AnswerStore | PromptAndAnswers


def earlier_answers(kit: Kit, most: int = MOST) -> AnswerStore:
    """The store of this kit's memory, settled once per decode, before anything is asked."""
    name = f"earlier answers, {most} tokens"
    return kit.index(name, lambda: kit.memory.setdefault(name, AnswerStore(most)).settle())


def with_answers(kit: Kit, corpus: StaticStore | None, most: int) -> Store | None:
    """What a drafter looks into beside its session: the corpus, `most` tokens of earlier answers, both or nothing."""
    if not most:
        return corpus
    answers = earlier_answers(kit, most)
    return answers if corpus is None else PromptAndAnswers(corpus, answers)
