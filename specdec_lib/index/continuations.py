"""Continuations: what followed the suffixes of a text earlier, as a tree that grows by how often each token followed.

Source: SuffixDecoding (Oliaro et al., arXiv 2411.04975), which counts in a suffix tree of bounded depth; a suffix
automaton holds the same counts at any depth, and the sorted contexts of a static store hold those of a corpus, which is
what REST drafts from (He et al. 2024, arXiv 2311.08252). The chance of a node, given its parent, is k / (n + d): k of n
occurrences went on with its token, and d stands for those that would have gone on otherwise. The two rules differ in d
alone:

- `SHARES`, as in the authors' own code, which counts the occurrence at the end of the text, too: d is 1 for the first
  token after the text's own suffix, else 0. What followed once has a chance of 1/2, and all that came after it of 1.
- `MATCH`, ours: d is the odds against a copy after so many matching tokens (`copy_probability`). So the chance of what
  followed once is that of a copy, it grows with the match, and it grows again with each occurrence that agrees. In a
  corpus of other texts a copy is less sure (`corpus_probability`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from itertools import islice
from typing import Any, NamedTuple, Protocol

from specdec_lib.cost.row_costs import FREE, RowCosts
from specdec_lib.index.sequences import Suffix
from specdec_lib.index.static_store import GAP
from specdec_lib.index.trees import copy_probability
from specdec_lib.types import ROOT, Budget

SHARES, MATCH = "shares", "match"
MOST = 8                                           # suffixes that are continued, longest first; a loop has hundreds


class Grown(NamedTuple):
    """A tree of continuations: its nodes, parents first, the chance of each given its parent, and that of its path."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    chances: tuple[float, ...] = ()
    gain: float = 0.0                              # the score less what the rows cost, in tokens
    match: int = 0                                 # tokens of the suffix that they continue

    @property
    def score(self) -> float:
        """The tokens that are expected to be accepted: the sum of the paths' chances (SuffixDecoding's score)."""
        return sum(self.chances)


class CountedText(Protocol):
    """An index that counts what followed: a suffix automaton, or a static store."""

    def count(self, state: Any) -> int:
        """How often the substrings of a state occur."""
        ...

    def ranked(self, state: Any) -> Iterable[tuple[int, int, Any]]:
        """What followed them, as (how often, token, state), the most frequent first; empty only in a sequence."""
        ...


class GrowthLimits(NamedTuple):
    """How trees grow: within a budget, and no node whose path has a lower chance than `least`."""

    budget: Budget
    least: float = 0.0
    rule: str = MATCH
    factor: float | None = None                    # nodes at most for each token of the suffix (SuffixDecoding's alpha)
    rows: RowCosts = FREE                          # and no more nodes than are worth these
    end: Collection[int] = ()                      # tokens that nothing follows
    copied: Callable[[int], float] = copy_probability          # of a copy after so many matching tokens

    def most(self, match: int) -> int:
        """Nodes at most after a suffix of so many tokens."""
        return self.budget.size if self.factor is None else min(self.budget.size, int(self.factor * match))


class OpenNode(NamedTuple):
    """A node that could join the tree next; nodes compare in order of preference."""

    unlikely: float                                # minus the chance of its path
    order: int                                     # of discovery
    parent: int
    token: int
    state: Any
    depth: int
    confidence: float


def best_continuation(text: CountedText, suffixes: Iterable[Suffix], growth: GrowthLimits,
                      own: bool = True) -> Grown:
    """Of the trees that continue the first of these suffixes the one with the highest gain, the longer on a tie.

    The suffixes are the `own` ones of the text, or those of another text that occur in this one, longest first.
    """
    best = Grown()
    for suffix in islice(suffixes, MOST):
        if growth.most(suffix.length) > best.gain:             # no node gains more than a token
            grown = grow(text, suffix, growth, own)
            best = max(best, grown, key=lambda one: one.gain)
    return best


def grow(text: CountedText, suffix: Suffix, growth: GrowthLimits, own: bool = True) -> Grown:
    """The likeliest continuations of a suffix, parents before children.

    Nodes join by the chance of their path, the first found among equals; as many stay as gain the most over their rows.
    """
    budget, rows, most = growth.budget, growth.rows, growth.most(suffix.length)
    joined: list[OpenNode] = []
    waiting: list[OpenNode] = []

    def offer(parent: int, state: Any, depth: int, chance: float) -> None:
        if own and not text.ranked(state):         # at the end of the text: the suffix goes on there as it did before
            state = suffix.state
        for confidence, token, after in followers(text, state, suffix.length + depth - 1, growth, chance,
                                                  own and state == suffix.state):
            heappush(waiting, OpenNode(-chance * confidence, len(waiting) + len(joined), parent, token, after, depth,
                                   confidence))

    if budget.depth:
        offer(ROOT, suffix.state, 1, 1.0)
    while waiting and len(joined) < most and not rows.too_dear(len(joined), -waiting[0].unlikely):
        node = heappop(waiting)
        joined.append(node)
        if node.depth < budget.depth and node.token not in growth.end:
            offer(len(joined) - 1, node.state, node.depth + 1, -node.unlikely)
    kept = joined[:rows.worth([-node.unlikely for node in joined])]
    chances = tuple(-node.unlikely for node in kept)
    return Grown(tuple(node.token for node in kept), tuple(node.parent for node in kept),
                 tuple(node.confidence for node in kept), chances, sum(chances) - rows(len(kept)), suffix.length)


def followers(text: CountedText, state: Any, match: int, growth: GrowthLimits, path: float = 1.0,
              at_end: bool = False) -> list[tuple[float, int, Any]]:
    """The tokens that followed a state after `match` tokens: each with its chance, the likeliest first, and its state.

    `path` is the chance of what was drafted before; `at_end` says that one occurrence is the end of the text, which has
    not gone on yet.
    """
    seen = text.count(state) - at_end
    doubt = at_end if growth.rule == SHARES else 1 / growth.copied(match) - 1
    found: list[tuple[float, int, Any]] = []
    for count, token, after in text.ranked(state):
        chance = min(1.0, count / (seen + doubt))  # beyond the automaton's climb `seen` may be too small
        if len(found) == growth.budget.width or path * chance < growth.least:
            break
        if token != GAP:
            found.append((chance, token, after))
    return found
