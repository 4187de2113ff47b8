"""EAGLE-2: the head's own confidence shapes the tree, one forward of the head a level.

Source: Li et al. 2024 (EAGLE-2). A node's score is the log-probability of its path under the head, s(child) =
s(parent) + ln q(token). The root proposes its best `width` tokens; the best `width` nodes of each level do the same
for the next; of all nodes ever scored the best `nodes` are submitted. They hang together without further care: no
chance exceeds one, so a parent scores at least as high as its children, and it was found before them.

Nodes are chosen by their score, none is drawn, so every node is certain at every temperature: lossless under any rule
that takes them so (`match`, `rejection`). With `width` >= `nodes` no tree of this size and depth promises more accepted
tokens to the head; a narrower one may miss some. Nodes whose path has less chance than `price` are not submitted: they
would cost more than they bring. The paper submits all it may, `price=0`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import NamedTuple

from specdec_lib.heads.eagle import EagleHead, eagle_head
from specdec_lib.scores import Scores, TokenStats
from specdec_lib.types import ROOT, Budget, Card, Draft, Kit, Refusal, Session, Trail

NAME = "eagle2"
GAIN = 1.5                                         # tokens that the time of a forward makes where the head drafts


class ScoredNode(NamedTuple):
    """A scored node of the growing tree."""

    token: int
    parent: int                                    # its place in the pool of all candidates, or ROOT
    score: float                                   # log-probability of its path, raw softmax at temperature 1
    stat: TokenStats


@dataclass(frozen=True)
class Eagle2:
    """The best tree that `head` finds within depth, width and nodes, level by level, best nodes first in each.

    Belief is the head's chance of the node after its parent; their product along the path is the node's score.
    """

    head: EagleHead
    price: float = 0.0                             # no node whose path has less chance under the head

    def __post_init__(self):
        if not 0 <= self.price <= 1:
            raise Refusal(f"price is a chance between 0 and 1, got {self.price}")

    def __call__(self, session: Session, budget: Budget, dice) -> Draft:
        if len(session.tokens) < 2 or not budget.size:     # one token shows no feature yet
            return Draft()
        pool = scored(session.end, budget, lambda fed: self.head(session.tokens, fed))
        worth = [node for node in ranking(pool)[:budget.size] if not self.price or pool[node].score >= log(self.price)]
        return tree(pool, sorted(worth))


def scored(end: frozenset[int], budget: Budget, ask: Callable[[Draft], Scores]) -> list[ScoredNode]:
    """Every candidate that growth comes across, level by level; asks once a level, about frontier nodes alone."""
    pool: list[ScoredNode] = []
    fed: list[int] = []
    frontier: list[int] = [ROOT]
    for _ in range(budget.depth):
        scores = ask(tree(pool, fed))
        level = len(pool)
        pool += offspring(pool, frontier, scores, budget.width)
        if budget.stop and budget.stop(trail(pool, level)):
            break                                  # what was scored stays, the next level is not grown
        frontier = going_on(pool, level, budget, end)
        if not frontier:
            break
        fed += frontier
    return pool


def offspring(pool: list[ScoredNode], parents: Sequence[int], scores: Scores, width: int) -> list[ScoredNode]:
    """The best `width` children of each parent, best first; the last rows of `scores` stand after the parents."""
    first_row = len(scores) - len(parents)
    rows = tuple(range(first_row, len(scores)))
    row_stats = scores.row_stats(rows, min(max(width, 2), scores.logits.shape[1]))
    found = []
    for parent, ids, logits, lse, entropy in zip(parents, row_stats.ids[first_row:].tolist(),
                                                 row_stats.logits[first_row:].tolist(), row_stats.lse,
                                                 row_stats.entropy,
                                                 strict=True):
        above = 0.0 if parent == ROOT else pool[parent].score
        logp = [min(logit - lse, 0.0) for logit in logits]     # rounding must not lift a child above its parent
        first, second = exp(logp[0]), exp(logp[1])
        found += [ScoredNode(token, parent, above + of, TokenStats(exp(of), first, second, entropy))
                  for token, of in zip(ids[:width], logp, strict=False)]
    return sorted(found, key=lambda node: -node.score)


def going_on(pool: list[ScoredNode], level: int, budget: Budget, end: frozenset[int]) -> list[int]:
    """The best `width` nodes from place `level` on that may have a child in the final tree.

    Scores only fall along a path, so the child of a node stands behind it and behind all that is better: unless fewer
    than `nodes` - 1 candidates are, nothing below the node can be chosen. Leaving it out changes no tree.
    """
    hopeful = set(ranking(pool)[:budget.size - 1])
    nodes = [node for node in range(level, len(pool)) if node in hopeful and pool[node].token not in end]
    return nodes[:budget.width]


def ranking(pool: list[ScoredNode]) -> list[int]:
    """Places in the pool, best score first; of equals the one found earlier, which keeps parents before children."""
    return sorted(range(len(pool)), key=lambda node: -pool[node].score)


def trail(pool: list[ScoredNode], node: int) -> Trail:
    """The sights along the path to this candidate."""
    out: list[TokenStats] = []
    while node != ROOT:
        out.append(pool[node].stat)
        node = pool[node].parent
    return tuple(reversed(out))


def tree(pool: list[ScoredNode], nodes: Sequence[int]) -> Draft:
    """The draft of these candidates, all certain; every parent must be among them, before its children."""
    place = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
    kept = [pool[node] for node in nodes]
    stats = tuple(node.stat for node in kept)
    return Draft(tuple(node.token for node in kept), tuple(place[node.parent] for node in kept), stats=stats,
                 source=(NAME,) * len(kept), confidence=tuple(stat.prob for stat in stats))


def make(kit: Kit, price: float | None = None) -> Eagle2:
    """The head of `eagle`, trained for chains, asked for trees; width, depth and nodes come with the budget.

    The price defaults to the share of a forward that a node costs, times the tokens that such a share makes elsewhere.
    """
    return Eagle2(eagle_head(kit.checkpoints["eagle"], kit.target),
                  min(1.0, GAIN * kit.price) if price is None else price)


CARD = Card(NAME, idea="the head's confidence shapes a tree", source="Li et al. 2024, EAGLE-2", make=make,
            needs=("eagle",), notebook="24_what_eagle")
