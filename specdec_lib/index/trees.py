"""Trees of copies: several copies of earlier text as one tree, grown by the probability that the target follows them.

The confidence of a copy follows from its match length and the score of its position. Where copies differ they vote. The
module does not depend on where copies come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from specdec_lib.cost.row_costs import FREE, RowCosts
from specdec_lib.types import ROOT, Budget, Draft

NEUTRAL = 0.5                                      # the score that does not change the odds
SURE = 0.98                                        # scores are clamped to [1 - SURE, SURE]


def copy_probability(length: int) -> float:
    """Confidence that a copy is right for one more token after n = `length` matching tokens: n / (n + 1.5).

    At n = 1 it is 0.24. Fitted to 420 answers of the default target, in which the share is 0.24 at 1, then 0.57, 0.65,
    0.73, 0.79 and, at 16, 0.94.
    """
    return 0.24 if length == 1 else length / (length + 1.5)


def corpus_probability(length: int) -> float:
    """The same of a copy from a corpus of other texts: n / (n + 8).

    Fitted by a script that is not kept to 6,000 places in answers of the default target, looked up in 5,278 of its
    answers to other prompts: what had followed once was right in 0.21 at 2 matching tokens, 0.39 at 5 and 0.56 at 8.
    """
    return length / (length + 8)


class CopySource(NamedTuple):
    """Text that followed the same `match` tokens earlier, at a position with this score."""

    tokens: tuple[int, ...]
    match: int
    score: float = NEUTRAL
    probability: Callable[[int], float] = copy_probability       # of one more token after so many that match

    def odds(self, depth: int) -> float:
        """Odds that this copy is right at `depth` if it was right before: of its probability, times the score's."""
        score = min(max(self.score, 1 - SURE), SURE)
        prob = self.probability(self.match + depth)
        return prob / (1 - prob) * score / (1 - score)


class Opening(NamedTuple):
    """A node that could join the tree next; openings compare in order of preference."""

    unlikely: float                                # minus the probability of the whole path
    order: int                                     # index of its first copy; lower wins among equals
    parent: int
    token: int
    prob: float                                    # given its parent
    copies: tuple[int, ...]
    depth: int                                     # tokens before it


def likely_tree(copies: Sequence[CopySource], budget: Budget, least: float, price: float,
                source: str = "", rows: RowCosts = FREE) -> tuple[Draft, list[tuple[int, ...]]]:
    """The most probable nodes of these copies within the budget, all deterministic, and by copy its nodes in the tree.

    Nodes join by the probability of their whole path, best first, until the best remaining one is below `price`; as
    many stay as gain the most over what their `rows` cost. The tree is empty if its first node is below `least`. The
    confidence of a node is its probability given its parent.
    """
    tokens: list[int] = []
    parents: list[int] = []
    confidence: list[float] = []
    chances: list[float] = []                      # of whole paths
    members: list[tuple[int, ...]] = [()] * len(copies)
    open_nodes: list[Opening] = []
    found = child_candidates(copies, tuple(range(len(copies))), budget, ROOT, 0, 1.0)
    while len(tokens) < budget.size:
        for one in found:
            heappush(open_nodes, one)
        if not open_nodes or -open_nodes[0].unlikely < (price if tokens else max(price, least)):
            break
        if rows.too_dear(len(tokens), -open_nodes[0].unlikely):
            break
        best = heappop(open_nodes)
        node = len(tokens)
        tokens.append(best.token)
        parents.append(best.parent)
        confidence.append(best.prob)
        chances.append(-best.unlikely)
        for copy in best.copies:
            members[copy] += (node,)
        found = child_candidates(copies, best.copies, budget, node, best.depth + 1, -best.unlikely)
    kept = rows.worth(chances)
    tree = Draft(tuple(tokens[:kept]), tuple(parents[:kept]), source=(source,) * kept,
                 confidence=tuple(confidence[:kept]))
    return tree, [tuple(node for node in nodes if node < kept) for nodes in members]


def child_candidates(copies: Sequence[CopySource], members: tuple[int, ...], budget: Budget, parent: int, depth: int,
                     path: float) -> list[Opening]:
    """The children that these copies propose after `parent`, whose path has the probability `path`, best first.

    The highest probability of any copy is divided among the tokens in proportion to the summed odds of their copies.
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
