"""Answer store: earlier answers, searched like a corpus for the longest suffix of a session.

Source: the dynamic half of SAM-Decoding (Hu et al. 2024), carried from prompt to prompt. The answers are concatenated
in one suffix automaton with a gap after each, so no match and no copy crosses from one into the next. A look-up walks
the last 64 tokens of the session, whatever the number of answers. Reading a token in costs amortised constant time and
happens at the first look-up that follows, so only decodes that search the store pay for it.

It lives in `kit.memory` and grows between decodes only: `finish`, which the loop calls once at the end of a decode or
when it is abandoned, adds its output. Within one decode every look-up has one answer. One decode at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from specdec_lib.cards import Kit
from specdec_lib.index.static_store import DEEPEST, GAP, CorpusMatch, StaticStore
from specdec_lib.index.suffix_automaton import SuffixAutomaton
from specdec_lib.types import Refusal, Session

MOST = 100_000                                     # about a hundred megabytes: an automaton takes 0.9 KB per token


class AnswerStore:
    """Earlier answers, at most `most` tokens; beyond that only the newest `most` // 2 tokens are kept."""

    def __init__(self, most: int = MOST, prompts: bool = False):
        if most < 2:
            raise Refusal(f"a store of earlier answers holds at least 2 tokens, got {most}")
        self.most, self.prompts = most, prompts    # whether prompts are kept with their answers
        self._automaton = SuffixAutomaton()
        self._waiting: list[tuple[int, ...]] = []  # added and not yet read in

    @property
    def size(self) -> int:
        """Number of tokens, including one gap after each answer."""
        return len(self.automaton.tokens)

    @property
    def automaton(self) -> SuffixAutomaton:
        """The index of all answers."""
        self._read_in()
        return self._automaton

    def add(self, answer: Sequence[int]) -> None:
        """Add one answer; an empty one is ignored."""
        if len(answer):
            self._waiting.append((*answer, GAP))

    def finish(self, session: Session) -> None:
        """The decode is over, or was given up: what it emitted is an earlier answer from now on."""
        self.add(session.tokens if self.prompts else session.output)

    def find(self, tokens: tuple[int, ...]) -> CorpusMatch:
        """The longest suffix of `tokens`, at most 64 tokens, that occurs in an earlier answer."""
        return CorpusMatch(*self.automaton.find(tokens[-DEEPEST:]))

    def following(self, start: int, n: int) -> tuple[int, ...]:
        """At most `n` tokens from `start` on, up to the end of the answer."""
        tokens = self._automaton.tokens[start:start + n]
        return tokens[:tokens.index(GAP)] if GAP in tokens else tokens

    def _read_in(self) -> None:
        if not self._waiting:
            return
        text = tuple(chain(self._automaton.tokens, *self._waiting))
        self._waiting = []
        if len(text) > self.most:                  # half, so that rebuilding has amortised constant cost
            self._automaton, text = SuffixAutomaton(), text[-(self.most // 2):]
        self._automaton.read(text)


class PromptAndAnswers(NamedTuple):
    """A corpus and the earlier answers after it as one store: the longer match wins, a tie goes to the answers."""

    corpus: StaticStore
    answers: AnswerStore

    def find(self, tokens: tuple[int, ...]) -> CorpusMatch:
        own, corpus = self.answers.find(tokens), self.corpus.find(tokens)
        if own.length < corpus.length or not own.length:
            return corpus
        return CorpusMatch(own.length, self.corpus.size + own.first, self.corpus.size + own.recent)

    def following(self, start: int, n: int) -> tuple[int, ...]:
        offset = start - self.corpus.size
        return self.answers.following(offset, n) if offset > 0 else self.corpus.following(start, n)


Store = StaticStore | AnswerStore | PromptAndAnswers


def earlier_answers(kit: Kit, most: int = MOST, prompts: bool = False) -> AnswerStore:
    """The store of this kit's memory; whoever asks first says whether prompts are kept, too."""
    return kit.memory.setdefault(f"earlier answers, {most} tokens", AnswerStore(most, prompts))


def with_answers(kit: Kit, corpus: StaticStore | None, most: int) -> Store | None:
    """What a drafter searches beside its session: the corpus, `most` tokens of earlier answers, both or None."""
    if not most:
        return corpus
    answers = earlier_answers(kit, most)
    return answers if corpus is None else PromptAndAnswers(corpus, answers)
