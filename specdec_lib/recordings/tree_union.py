"""Forests: what has to be recorded of a drafter that grows trees, so that every smaller tree can be read from it.

Such a drafter expands the best `width` nodes of each level and submits the best `nodes` of all by path score. Its tree
of fewer nodes is the best part of a larger one, but a tree of less depth holds shallow nodes that a deeper one left
out, and a narrower one expands nodes that a wider one passed over. So it is asked for each width and last level, at the
most nodes, and what it submits is put together. Cost: about depth x width drafts a place, while recording.
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
    """A stop rule: no level below this one. Unlike a smaller depth it leaves the nodes that a budget allows."""

    depth: int

    def __call__(self, trail: Trail) -> bool:
        return len(trail) >= self.depth


class MergedNode(NamedTuple):
    """A node of the forest."""

    score: float                                   # sum of ln belief along its path
    confidence: float
    stat: TokenStats


def union_tree(ask: Callable[[Budget], Draft], largest: Budget) -> Draft:
    """Every node of any tree that `ask` drafts within `largest`, best first; `largest` itself is asked first."""
    trees: list[Draft] = []
    for width in range(largest.width, 0, -1):
        depth = largest.depth
        while depth > 0:
            stop = Until(depth) if depth < largest.depth else None
            trees.append(ask(Budget(largest.depth, width, largest.size, stop=stop)))
            depth = min(depth, trees[-1].depth) - 1        # allowing a depth that was not used changes no tree
    return best_first(trees)


def best_first(trees: Iterable[Draft]) -> Draft:
    """These trees as one, nodes by the product of beliefs along their path; of equals the shallower, then the earlier.

    No belief exceeds one, so parents stand before their children. Needs belief and sights of every node.
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
