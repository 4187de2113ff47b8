"""Token Recycling: a tree of the successors that the target itself last ranked highest for each token.

Source: Luo et al. 2024. The published tree is fixed (80 nodes, for a GPU). Here its nodes come from the budget: a
node's weight is the product of the weights of its ranks along the path, and the open node of the largest weight joins
next, so a small tree is the beginning of a large one. Every node is deterministic. It also learns from rejected nodes,
so it is not a function of the committed text alone. Cost: no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from specdec_lib.cards import Card, Kit
from specdec_lib.index.successor_table import WEIGHTS, SuccessorTable, shared_table
from specdec_lib.types import ROOT, Budget, Draft, RandomNumbers, Refusal, Session

NAME = "token-recycling"


@dataclass(frozen=True)
class TokenRecycling:
    """The most probable nodes of the successor tree, parents before children, within depth, width and nodes."""

    table: SuccessorTable
    weights: tuple[float, ...] = WEIGHTS           # probability that the successor of this rank is next

    def __post_init__(self):
        if not self.weights or any(not 0 < weight < 1 for weight in self.weights):
            raise Refusal(f"weights must be probabilities between 0 and 1, one per rank, got {self.weights}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        self.table.read(session)
        tokens: list[int] = []
        parents: list[int] = []
        confidence: list[float] = []
        open_nodes: list[tuple[float, int, int, int, int, int]] = []
        count = 0                                  # orders equal weights by discovery

        def offer(parent: int, token: int, depth: int, reach: float) -> None:
            nonlocal count
            for rank, next in enumerate(self.table.successors(token)[:min(budget.width, len(self.weights))]):
                count += 1
                heappush(open_nodes, (-reach * self.weights[rank], count, parent, next, depth, rank))

        if budget.depth:
            offer(ROOT, session.tokens[-1], 1, 1.0)
        while open_nodes and len(tokens) < budget.size:
            reach, _, parent, token, depth, rank = heappop(open_nodes)
            tokens.append(token)
            parents.append(parent)
            confidence.append(self.weights[rank])
            if depth < budget.depth and token not in session.end:
                offer(len(tokens) - 1, token, depth + 1, -reach)
        return Draft(tuple(tokens), tuple(parents), source=(NAME,) * len(tokens), confidence=tuple(confidence))


def make(kit: Kit, weights: tuple[float, ...] = WEIGHTS, text: bool = True) -> TokenRecycling:
    """With `text` the prompt's own text fills the table first; `text=False` starts empty, as published."""
    return TokenRecycling(shared_table(kit, text), tuple(weights))


CARD = Card(NAME, idea="a tree of the successors that the target last ranked highest", source="Luo et al. 2024",
            make=make, notebook="22_what_token_recycling", off_path=True)
