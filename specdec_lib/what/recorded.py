"""Recorded: replay what a drafter proposed at this prefix of a recording, pruned to the budget and the stop rule.

Source: ours. The replay is exact for drafters that depend on the committed prefix alone; a card says `off_path` where
that does not hold, and such a drafter replays its own run only. Cost: no model pass, so sliders can call it at every
step.

A chain is cut. A tree is grown again, with the recorded union of trees in place of the drafter's network. It equals the
drafter's tree, node for node, for every depth, width, number of nodes and stop rule up to the recorded budget, and for
every price of a node; a larger budget gives the tree of the recorded one. Exact up to ties: scores that differ by less
than rounding may swap. For a drafter that fills blocks, the draft of some depth is the beginning of the recorded block
that is long enough, as from a live drafter whose `block` has that length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from specdec_lib.cards import Card, Kit
from specdec_lib.cost.row_costs import FREE, RowCosts
from specdec_lib.trees import prune
from specdec_lib.types import ROOT, Budget, Draft, Lattice, RandomNumbers, Session


@dataclass(frozen=True)
class Recorded:
    """The drafts of `drafter` in a recording."""

    recording: Any                                 # models.replay.Recording
    drafter: str
    price: float = 0.0                             # of trees: minimal path probability of a node under the drafter
    rows: RowCosts = FREE                          # and no more nodes than are worth their rows

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        kept = self.recording.draft(self.drafter, len(session.tokens), budget.depth)
        if self.drafter in self.recording.trees:
            tree = regrow(kept, limit_budget(budget, self.recording.trees[self.drafter]), session.end)
            return worthwhile(tree, self.price, self.rows) if self.price or self.rows is not FREE else tree
        return prune(kept, budget)

    def lattice(self, session: Session, depth: int, top: int = 16) -> Lattice:
        """The `top` most probable tokens of the next `depth` slots, or of as many as were recorded."""
        kept = self.recording.lattice(self.drafter, len(session.tokens), depth)
        return Lattice(kept.ids[:, :top], kept.logp[:, :top])


def limit_budget(budget: Budget, largest: Budget) -> Budget:
    """The budget, limited to the depth, width and nodes of the recorded one."""
    return replace(budget, depth=min(budget.depth, largest.depth), width=min(budget.width, largest.width),
                   nodes=min(budget.size, largest.size))


def regrow(forest: Draft, budget: Budget, end: frozenset[int] = frozenset()) -> Draft:
    """The tree of this budget from a union of trees with nodes best first: level by level, best first in each.

    Each level has the best `width` children of the best `width` nodes above that are no end tokens; the best nodes of
    all levels are chosen. The stop rule is called with the best path of each level; nodes found by then stay.
    """
    found: list[int] = []
    frontier: list[int] = [ROOT]
    for _ in range(budget.depth):
        level = sorted(child for node in frontier for child in forest.children.get(node, ())[:budget.width])
        found += level
        if not level or (budget.stop and budget.stop(forest.trail(level[0]))):
            break
        frontier = [node for node in level if forest.tokens[node] not in end][:budget.width]
    best = sorted(found)[:budget.size]
    return forest.keep(tuple(sorted(best, key=lambda node: (forest.depths[node], node))))


def worthwhile(draft: Draft, price: float, rows: RowCosts) -> Draft:
    """The nodes whose path probability, the product of confidences, is at least `price`, as many as gain most.

    A parent's probability is never lower than its child's.
    """
    chances = [prod(draft.confidence[i] for i in draft.path(node)) for node in range(len(draft))]
    best = sorted((node for node in range(len(draft)) if chances[node] >= price), key=lambda node: -chances[node])
    return draft.keep(tuple(sorted(best[:rows.worth([chances[node] for node in best])])))


def make(kit: Kit, drafter: str = "suffix-automaton", price: float = 0.0) -> Recorded:
    """Replays one drafter of the kit's recording; `price` is that of eagle2, by default 0, which prunes nothing."""
    return Recorded(kit.recording, drafter, price)


CARD = Card("recorded", idea="replay what a drafter proposed", source="this workbook", make=make,
            needs=("recording",), notebook="03_one_loop")
