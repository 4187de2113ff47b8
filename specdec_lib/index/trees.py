"""Likely trees: several copies of earlier text as one tree, grown where the target is likeliest to follow.

A copy is believed by how far it agreed before it was taken, and by the score its place has earned. Where copies go
different ways they vote. Knows nothing about where copies come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from specdec_lib.types import ROOT, Budget, Draft

NEUTRAL = 0.5                                      # the score that leaves the odds as they are
SURE = 0.98                                        # no score is believed more than this, or less than its opposite


class CopySource(NamedTuple):
    """Text that once stood behind the same `match` tokens, from a place with this score."""

    tokens: tuple[int, ...]
    match: int
    score: float = NEUTRAL

    def odds(self, depth: int) -> float:
        """Odds that this copy is right at `depth`, given that it was before; its score multiplies them."""
        score = min(max(self.score, 1 - SURE), SURE)
        prob = copy_chance(self.match + depth)
        return prob / (1 - prob) * score / (1 - score)


class Opening(NamedTuple):
    """A node that could join the tree next; openings compare as they are preferred."""

    unlikely: float                                # minus the chance of the whole path
    order: int                                     # found earlier, preferred among equals
    parent: int
    token: int
    prob: float                                    # after its parent
    copies: tuple[int, ...]
    depth: int                                     # tokens before it


def copy_chance(length: int) -> float:
    """The chance that a copy goes on for one more token when its last `length` tokens already agreed.

    Fitted to 420 answers of the default target: 0.24 at 1, then 0.57, 0.65, 0.73, 0.79 and, at 16, 0.94.
    """
    return 0.24 if length == 1 else length / (length + 1.5)


def likely_tree(copies: Sequence[CopySource], budget: Budget, least: float, price: float,
                source: str = "") -> tuple[Draft, list[tuple[int, ...]]]:
    """The likeliest nodes of these copies within the budget, all certain, and the nodes of each copy that joined.

    Nodes join by the chance of their whole path, best first, until the best one left has less than `price`; no tree
    grows whose first node has less than `least`. Belief is the chance after the parent.
    """
    tokens: list[int] = []
    parents: list[int] = []
    confidence: list[float] = []
    joined: list[tuple[int, ...]] = [()] * len(copies)
    open_nodes: list[Opening] = []
    found = openings(copies, tuple(range(len(copies))), budget, ROOT, 0, 1.0)
    while len(tokens) < budget.size:
        for one in found:
            heappush(open_nodes, one)
        if not open_nodes or -open_nodes[0].unlikely < (price if tokens else max(price, least)):
            break
        best = heappop(open_nodes)
        node = len(tokens)
        tokens.append(best.token)
        parents.append(best.parent)
        confidence.append(best.prob)
        for copy in best.copies:
            joined[copy] += (node,)
        found = openings(copies, best.copies, budget, node, best.depth + 1, -best.unlikely)
    return Draft(tuple(tokens), tuple(parents), source=(source,) * len(tokens), confidence=tuple(confidence)), joined


def openings(copies: Sequence[CopySource], members: tuple[int, ...], budget: Budget, parent: int, depth: int,
             path: float) -> list[Opening]:
    """The children that these copies propose after `parent`, whose path has the chance `path`, best first.

    Copies share the chance of the one believed most, each token by the odds of the copies behind it.
    """
    votes: dict[int, list[int]] = {}
    for copy in members:
        if depth < min(len(copies[copy].tokens), budget.depth):
            votes.setdefault(copies[copy].tokens[depth], []).append(copy)
    odds = {token: [copies[copy].odds(depth) for copy in group] for token, group in votes.items()}
    total, most = sum(map(sum, odds.values())), max(map(max, odds.values()), default=0.0)
    prob = {token: most / (1 + most) * sum(group) / total for token, group in odds.items()}
    ranked = sorted(votes, key=lambda token: -prob[token])[:budget.width]
    return [Opening(-path * prob[token], votes[token][0], parent, token, prob[token], tuple(votes[token]), depth)
            for token in ranked]
