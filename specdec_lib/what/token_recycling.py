"""Token Recycling: a tree over the successors that the target itself last named for each token.

Source: Luo et al. 2024. The published tree is fixed (80 nodes of a GPU's size). Here its nodes come from the
budget, the likeliest first: a node's weight is the product of the weights of its ranks along the path, and
the open node of the largest weight joins next, so small budgets are the beginning of large ones. Costs no
model pass; every node is certain. It learns from rejected nodes too, so it is not a function of the committed
text alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from specdec_lib.index.successor_table import SuccessorTable
from specdec_lib.types import ROOT, Budget, Card, Draft, Kit, Refusal, Session

NAME = "token-recycling"
WEIGHTS = (0.55, 0.1, 0.05, 0.03, 0.02, 0.015, 0.01, 0.01)


@dataclass(frozen=True)
class TokenRecycling:
    """The likeliest nodes of the successor tree, parents before children, within depth, width and nodes."""

    table: SuccessorTable
    weights: tuple[float, ...] = WEIGHTS           # chance that the successor of this rank is the next token

    def __post_init__(self):
        if not self.weights or any(not 0 < weight < 1 for weight in self.weights):
            raise Refusal(f"weights are chances between 0 and 1, one per rank, got {self.weights}")

    def __call__(self, session: Session, budget: Budget, dice) -> Draft:
        self.table.read(session)
        tokens: list[int] = []
        parents: list[int] = []
        confidence: list[float] = []
        open_nodes: list[tuple[float, int, int, int, int, int]] = []
        count = 0                                  # keeps equal weights in the order in which they were found

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
    """Starts each prompt with what stands in it; without `text`, as published, with nothing."""
    name = "successor table" if text else "successor table without text"
    return TokenRecycling(kit.index(name, lambda: SuccessorTable(text=text)), tuple(weights))


CARD = Card(NAME, idea="a tree of the tokens the target last thought likely", source="Luo et al. 2024",
            make=make, notebook="22_what_token_recycling", off_path=True)
