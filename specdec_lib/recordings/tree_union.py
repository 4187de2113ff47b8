"""The union of a drafter's trees: a recording of it contains every smaller tree.

Such a drafter expands the best `width` nodes of each level and submits the best `nodes` of all by path score. A tree
with fewer nodes is the best part of a larger one. But a shallower tree holds nodes that a deeper one leaves out, and a
narrower one expands nodes that a wider one skips. So the drafter is called for each width and last level with the most
nodes, and its trees are merged. Cost: about depth x width drafts per position, while recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, log
from typing import NamedTuple

from specdec_lib.scores import TokenStats
from specdec_lib.types import ROOT, Budget, Draft, Trail


@dataclass(frozen=True)
class Until:
    """A stop rule: no level below this one. Unlike a smaller depth it does not reduce the node budget."""

    depth: int

    def __call__(self, trail: Trail) -> bool:
        return len(trail) >= self.depth


class MergedNode(NamedTuple):
    """A node of the union."""

    score: float                                   # sum of ln confidence along its path
    confidence: float
    stat: TokenStats


def union_tree(ask: Callable[[Budget], Draft], largest: Budget) -> Draft:
    """Every node of any tree that `ask` drafts within `largest`, best first; the first call is for `largest` itself."""
    trees: list[Draft] = []
    for width in range(largest.width, 0, -1):
        depth = largest.depth
        while depth > 0:
            stop = Until(depth) if depth < largest.depth else None
            trees.append(ask(Budget(largest.depth, width, largest.size, stop=stop)))
            depth = min(depth, trees[-1].depth) - 1        # a larger limit than the depth used changes no tree
    return best_first(trees)


def best_first(trees: Iterable[Draft]) -> Draft:
    """These trees merged, nodes sorted by the product of confidences along their path; of equals the shallower first.

    No confidence exceeds one, so parents precede their children. Needs confidence and stats of every node.
    """
    nodes: dict[tuple[int, ...], MergedNode] = {}
    for tree in trees:
        for node, (confidence, stat) in enumerate(zip(tree.confidence, tree.stats, strict=True)):
            path = tuple(tree.tokens[i] for i in tree.path(node))
            above = nodes[path[:-1]].score if len(path) > 1 else 0.0
            nodes.setdefault(path, MergedNode(above + (log(confidence) if confidence else -inf), confidence, stat))
    paths = sorted(nodes, key=lambda path: (-nodes[path].score, len(path)))
    place = {(): ROOT} | {path: i for i, path in enumerate(paths)}
    return Draft(tuple(path[-1] for path in paths), tuple(place[path[:-1]] for path in paths),
                 stats=tuple(nodes[path].stat for path in paths),
                 confidence=tuple(nodes[path].confidence for path in paths))
