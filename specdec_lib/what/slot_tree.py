"""Slot tree: the likeliest paths through the slots of one block as one tree, found best first.

Source: DDTree (arXiv 2604.12989). A heap holds candidates by the probability of their path; the best one joins the
tree, and its next sibling and its first child join the heap, until the tree has all its nodes. There the slots are
independent of each other. A block drafter here has DSpark's correction from left to right (arXiv 2607.05147), which
gives every candidate's probability after each candidate of the slot before: what follows then depends on the parent. A
path's probability is one of the whole vocabulary, so it can be compared with what its node costs, by `cost.row_costs`.
No path that is left out is more probable under these than one in the tree, unless the width excludes it.

Nodes are chosen and none is drawn, so every node is deterministic at every temperature; its confidence is its
probability after its parent. Cost: one forward of the drafter per tree, as for a chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from math import exp, inf, log
from typing import NamedTuple

from specdec_lib.cards import Card, Kit
from specdec_lib.cost.row_costs import FREE, RowCosts, node_costs
from specdec_lib.lattice import LatticeDrafter
from specdec_lib.linked_slots import LinkedSlots, UnlinkedSlots
from specdec_lib.scores import TokenStats
from specdec_lib.trees import prune
from specdec_lib.types import ROOT, Budget, Draft, RandomNumbers, Refusal, Session

NAME = "slot-tree"
GAIN = 1.5                                         # tokens generated per forward time; no other value was measured


class WaitingNode(NamedTuple):
    """A child that may join the tree next; in a heap the one with the likeliest path is first, then the earliest."""

    cost: float                                    # minus the log-probability of its path
    order: int
    parent: int                                    # its node in the tree, or ROOT
    slot: int
    before: int                                    # column of the parent in the slot before, 0 for the first slot
    rank: int                                      # among the parent's children


@dataclass(frozen=True)
class SlotTree:
    """The best tree of paths through the block of `drafter`, within depth, width and nodes of the budget.

    With `linked` a drafter's correction joins the slots, where it has one; else they are independent of each other.
    """

    drafter: LatticeDrafter
    price: float = 0.0                             # nodes whose path probability is lower are not submitted
    rows: RowCosts = FREE                          # and no more nodes than are worth their rows
    top: int = 16                                   # candidates of a slot
    linked: bool = True

    def __post_init__(self):
        if not 0 <= self.price <= 1 or self.top < 2:
            raise Refusal(f"price must be a probability and top at least 2, got {self.price} and {self.top}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        depth = min(budget.depth, budget.size)
        if depth < 1:
            return Draft()
        links = getattr(self.drafter, "links", None) if self.linked else None
        slots = (links(session, depth, self.top) if links else
                 UnlinkedSlots(self.drafter.lattice(session, depth, self.top)))
        return prune(best_tree(slots, budget, session.end, self.price, self.rows), budget)


def best_tree(slots: LinkedSlots, budget: Budget, end: frozenset[int] = frozenset(), price: float = 0.0,
              rows: RowCosts = FREE) -> Draft:
    """The most probable paths as a tree of at most `budget.size` nodes, each with at most `budget.width` children.

    Nodes are in the order of their paths' probability. Nothing follows an end token, no path is less probable than
    `price`, and there are as many nodes as gain the most over what their `rows` cost.
    """
    ids, after = slots.listed(budget.width)
    most = -log(price) if price else inf
    heap = [WaitingNode(-after(0, 0).logp[0], 0, ROOT, 0, 0, 0)]
    nodes: list[tuple[int, int, TokenStats]] = []          # token, parent, statistics
    chances: list[float] = []
    while heap and len(nodes) < budget.size and heap[0].cost <= most:
        chance = exp(-heap[0].cost)
        if rows.too_dear(len(nodes), chance):
            break
        one = heappop(heap)
        chances.append(chance)
        children = after(one.slot, one.before)
        column, own = children.columns[one.rank], children.logp[one.rank]
        first, second = (exp(value) for value in (*children.logp, -inf)[:2])
        node, token = len(nodes), ids[one.slot][column]
        nodes.append((token, one.parent, TokenStats(exp(own), first, second, children.entropy)))
        if one.rank + 1 < min(budget.width, len(children.columns)):
            cost = one.cost + own - children.logp[one.rank + 1]
            heappush(heap, one._replace(cost=cost, order=2 * node + 1, rank=one.rank + 1))
        if one.slot + 1 < len(ids) and token not in end:
            cost = one.cost - after(one.slot + 1, column).logp[0]
            heappush(heap, WaitingNode(cost, 2 * node + 2, node, one.slot + 1, column, 0))
    nodes = nodes[:rows.worth(chances)]
    tokens, parents, stats = zip(*nodes, strict=True) if nodes else ((), (), ())
    return Draft(tokens, parents, stats=stats, source=(NAME,) * len(nodes), confidence=tuple(s.prob for s in stats))


def make(kit: Kit, drafter: str = "block-diffusion", price: float | None = None, top: int = 16,
         linked: bool = True, block: int | None = None) -> SlotTree:
    """Trees from the block of the part `drafter`, `block` slots long if given.

    Without a price the kit's cost curve says which nodes are worth their rows.
    """
    part = kit.part(drafter, **({} if block is None else {"block": block}))
    if not hasattr(part, "lattice"):
        raise Refusal(f"{drafter} has no slots to draft a tree from: use a drafter that fills a block, such as "
                      "block-diffusion")
    return SlotTree(part, *node_costs(kit, GAIN, price), top, linked)


CARD = Card(NAME, idea="the likeliest paths through the slots of a block, as one tree",
            source="DDTree, arXiv 2604.12989", make=make, parts=("block-diffusion",),
            notebook="27b_what_slot_tree")
