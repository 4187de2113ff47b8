"""Growing store: earlier answers, asked like a corpus: where does the longest suffix of a session stand in them?

Source: the dynamic half of SAM-Decoding (Hu et al. 2024), carried from prompt to prompt. The answers lie one after the
other in one suffix automaton, a gap behind each, so no match and no copy runs from one into the next. A look-up walks
the last 64 tokens of the session, whatever the number of answers; reading a token in costs amortised constant time and
is done at the first look-up that follows, so that whoever gains by it pays for it.

It lives in `kit.memory` and grows between decodes alone: `finish`, which the loop calls once when a decode is over or
given up, adds what it emitted. Within one decode every question has one answer. One decode at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from specdec_lib.index.static_store import DEEPEST, GAP, CorpusMatch, StaticStore
from specdec_lib.index.suffix_automaton import SuffixAutomaton
from specdec_lib.types import Kit, Refusal, Session

MOST = 100_000                                     # about a hundred megabytes: an automaton takes 0.9 KB per token


class AnswerStore:
    """Starts empty. Where more than `most` tokens would stand in it, it begins again with the newest half of that."""

    def __init__(self, most: int = MOST, prompts: bool = False):
        if most < 2:
            raise Refusal(f"a store of earlier answers holds at least 2 tokens, got {most}")
        self.most, self.prompts = most, prompts    # whether prompts are kept with their answers
        self._automaton = SuffixAutomaton()
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

    def finish(self, session: Session) -> None:
        """The decode is over, or was given up: what it emitted is an earlier answer from now on."""
        self.add(session.tokens if self.prompts else session.output)

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


def earlier_answers(kit: Kit, most: int = MOST, prompts: bool = False) -> AnswerStore:
    """The store of this kit's memory; whoever asks first says whether prompts are kept, too."""
    return kit.memory.setdefault(f"earlier answers, {most} tokens", AnswerStore(most, prompts))


def with_answers(kit: Kit, corpus: StaticStore | None, most: int) -> Store | None:
    """What a drafter looks into beside its session: the corpus, `most` tokens of earlier answers, both or nothing."""
    if not most:
        return corpus
    answers = earlier_answers(kit, most)
    return answers if corpus is None else PromptAndAnswers(corpus, answers)
