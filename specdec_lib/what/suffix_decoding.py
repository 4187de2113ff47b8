"""Suffix decoding: the likeliest continuations of the text's suffixes as a tree, by how often each token followed.

Source: SuffixDecoding (Oliaro et al., arXiv 2411.04975), of which we know the abstract, the authors' page and their
code. Every suffix of the text that occurred earlier, in this text or in an earlier answer, is continued by a tree; the
one with the highest score is drafted, where the score is the number of tokens that are expected to be accepted.
In their setting a suffix of n tokens gets at most `factor` x n nodes, each with a path of a chance of at least 0.1:
`rule="shares", factor=1, least=0.1, price=0`. vLLM drafts the likeliest chain alone, which is a width of 1.

Ours, `rule="match"`, takes the chance of what followed from the match length as well (`index/continuations.py`), so it
needs no bound by the match, and the nodes are those that are worth their rows on the cost curve. Every node is
deterministic, and the draft depends on the text, the earlier answers and the corpus alone. Cost: no model pass.

A corpus at `kit.store` is continued as well. This is the tree of REST (He et al., NAACL 2024, arXiv 2311.08252), where
the longest of the suffixes of 16 to 2 tokens that occurs is continued by the 64 most frequent nodes, whatever their
chance, and the text itself is not searched.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.cost.row_costs import FREE, RowCosts, node_costs
from specdec_lib.index.continuations import MATCH, SHARES, Grown, GrowthLimits, best_continuation
from specdec_lib.index.matcher import shared_matcher
from specdec_lib.index.static_store import DEEPEST, StaticStore
from specdec_lib.index.suffix_automaton import SuffixAutomaton
from specdec_lib.index.trees import corpus_probability
from specdec_lib.memory.answers import AnswerStore, earlier_answers
from specdec_lib.types import Budget, Draft, RandomNumbers, Refusal, Session

NAME = "suffix-decoding"
GAIN = 2.0                                         # tokens generated per forward time while copying


@dataclass(frozen=True)
class SuffixDecoding:
    """A tree of the likeliest continuations within depth, width and nodes; empty where nothing occurred earlier."""

    text: SuffixAutomaton
    answers: AnswerStore | None = None
    rule: str = MATCH
    least: float = 0.0                             # least chance of a node's path
    factor: float | None = None                    # nodes for each token that matches
    worth: float = 0.0                             # nothing is drafted where fewer tokens are expected
    rows: RowCosts = FREE
    corpus: StaticStore | None = None

    def __post_init__(self):
        if self.rule not in (MATCH, SHARES):
            raise Refusal(f"rule must be {MATCH!r} or {SHARES!r}, got {self.rule!r}")
        if not 0 <= self.least <= 1:
            raise Refusal(f"least must be a probability between 0 and 1, got {self.least}")
        if not (self.worth >= 0 and (self.factor is None or self.factor > 0)):
            raise Refusal(f"worth must be 0 tokens or more and factor above 0, got {self.worth} and {self.factor}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        best = self.best(session, budget)
        if best.score < self.worth:
            return Draft()
        return Draft(best.tokens, best.parents, source=(NAME,) * len(best.tokens), confidence=best.confidence)

    def best(self, session: Session, budget: Budget) -> Grown:
        """The continuation with the highest gain; a tie goes to the session's own text, then to the longer match."""
        if not budget.size:
            return Grown()
        growth = GrowthLimits(budget, self.least, self.rule, self.factor, self.rows, session.end)
        self.text.read(session.tokens)
        found = [best_continuation(self.text, self.text.repeated(), growth)]
        if self.answers is not None:
            earlier = self.answers.automaton
            found.append(best_continuation(earlier, earlier.suffixes(session.tokens[-DEEPEST:]), growth, own=False))
        if self.corpus is not None:
            there = growth._replace(copied=corpus_probability)
            found.append(best_continuation(self.corpus, self.corpus.suffixes(session.tokens), there, own=False))
        return max(found, key=lambda one: one.gain)


def make(kit: Kit, rule: str = MATCH, least: float = 0.0, factor: float | None = None, worth: float = 0.0,
         price: float | None = None, remember: int = 0) -> SuffixDecoding:
    """Without a price the kit's cost curve says which nodes are worth their rows; `least` bounds them in any case.

    `remember` is the number of tokens of earlier answers that are continued as well, 0 for none; so is the corpus at
    `kit.store`, if there is one.
    """
    text = kit.index("suffix automaton", SuffixAutomaton)
    price, rows = node_costs(kit, GAIN, price)
    return SuffixDecoding(text, earlier_answers(kit, remember) if remember else None, rule, max(least, price), factor,
                          worth, rows, shared_matcher(kit).store)


CARD = Card(NAME, idea="continue the text's suffixes by how often each token followed",
            source="Oliaro et al. 2025, SuffixDecoding", make=make, notebook="21b_what_suffix_decoding",
            learns_across_prompts=True)            # with `remember`, which is off by default
