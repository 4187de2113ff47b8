"""Lengthened: another drafter's tree goes on below its leaves with copies and with recycled successors.

Source: ours, from EAGLE-2's tree (Li et al. 2024), the successor table of Token Recycling (Luo et al. 2024) and copies
of n-grams as in prompt lookup. A step of a trained head is paid whether or not its tokens are accepted, so its tree
ends early where it is unsure. What follows its tokens in the text, or followed them when the target last ranked its
tokens there, costs no step, and a few rows more cost the target little. So the tree goes on while the probability of a
path, the drafter's times that of what follows, is worth its row, or at least `price`.

Every added node is deterministic and depends on the nodes above it alone, so the draft is as lossless as the drafter's
own. Cost: no model pass beside the drafter's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

from specdec_lib.cards import Card, Kit, naming
from specdec_lib.cost.row_costs import FREE, RowCosts, node_costs
from specdec_lib.index.ngram_positions import NgramPositions
from specdec_lib.index.successor_table import WEIGHTS, SuccessorTable, shared_table
from specdec_lib.index.trees import copy_probability
from specdec_lib.sharing import asking_of
from specdec_lib.types import ROOT, Budget, Draft, RandomNumbers, Refusal, Session, What

NAME = "lengthened"
COPIED, RECYCLED = "copied", "recycled"
GAIN = 1.25                                        # tokens generated per forward time, as for the head's own nodes
NEWEST = 8                                         # earlier positions of an n-gram that vote
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Following(NamedTuple):
    """A node that could join the tree next; these compare in order of preference."""

    unlikely: float                                # minus the probability of the whole path
    order: int                                     # of discovery; lower wins among equals
    parent: int
    token: int
    prob: float                                    # given its parent
    source: str


@dataclass(frozen=True)
class Lengthened:
    """The draft of `inner` and the most probable nodes below its leaves, within the budget's depth and nodes."""

    inner: What
    table: SuccessorTable
    positions: NgramPositions
    price: float = 0.02                            # minimal probability of the path of an added node
    rows: RowCosts = FREE                          # and no more of them than are worth their rows
    weights: tuple[float, ...] = WEIGHTS           # probability that the successor of this rank is next

    def __post_init__(self):
        if not self.weights or any(not 0 < weight < 1 for weight in self.weights):
            raise Refusal(f"weights must be probabilities between 0 and 1, one per rank, got {self.weights}")
        if not 0 <= self.price <= 1:
            raise Refusal(f"price must be a probability between 0 and 1, got {self.price}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        return self.lengthened(session, budget, self.inner(session, budget, dice))

    def asking(self, session: Session, budget: Budget, dice: RandomNumbers) -> Generator[Any, Any, Draft]:
        """The same, the inner drafter's forwards left to others."""
        return self.lengthened(session, budget, (yield from asking_of(self.inner, session, budget, dice)))

    def lengthened(self, session: Session, budget: Budget, draft: Draft) -> Draft:
        """The draft, with further nodes where the probabilities of its own are known."""
        if not draft.confidence:
            return draft
        self.table.read(session)
        self.positions.read(session.tokens)
        return self.grown(session, budget, draft)

    def grown(self, session: Session, budget: Budget, draft: Draft) -> Draft:
        """The draft with further nodes, the most probable first."""
        tokens, parents, confidence = list(draft.tokens), list(draft.parents), list(draft.confidence)
        source, depths, reach = list(draft.source or ("",) * len(draft)), list(draft.depths), {ROOT: 1.0}
        tails = {ROOT: session.tokens[-self.positions.longest:]}
        open_nodes: list[Following] = []
        order = count()

        def enter(node: int) -> None:
            reach[node] = reach[parents[node]] * confidence[node]
            tails[node] = (*tails[parents[node]], tokens[node])[-self.positions.longest:]
            if node in draft.children or depths[node] == budget.depth or tokens[node] in session.end:
                return
            for token, prob, name in self.following(tails[node]):
                if reach[node] * prob >= self.price:
                    heappush(open_nodes, Following(-reach[node] * prob, next(order), node, token, prob, name))

        for node in range(len(draft)):
            enter(node)
        own, chances = len(draft), []
        while open_nodes and len(tokens) < budget.size and not self.rows.too_dear(len(tokens), -open_nodes[0].unlikely):
            one = heappop(open_nodes)
            chances.append(-one.unlikely)
            tokens.append(one.token)
            parents.append(one.parent)
            confidence.append(one.prob)
            source.append(one.source)
            depths.append(depths[one.parent] + 1)
            enter(len(tokens) - 1)
        kept = own + self.rows.worth(chances, own)
        return Draft(tuple(tokens[:kept]), tuple(parents[:kept]), draft.q and draft.q + (None,) * (kept - own),
                     source=tuple(source[:kept]), confidence=tuple(confidence[:kept]), notes=draft.notes)

    def following(self, tail: Sequence[int]) -> Iterator[tuple[int, float, str]]:
        """Tokens that may follow and their probabilities: first those after the tail's longest n-gram in the text."""
        left, seen = 1.0, set()
        for n in range(len(tail), 1, -1):
            text, found = self.positions.tokens, self.positions.after(tail[-n:])[-NEWEST:]
            votes = Counter(text[at] for at in reversed(found) if at < len(text))
            for token, share in votes.most_common():
                prob = copy_probability(n) * share / votes.total()
                left, seen = left - prob, seen | {token}
                yield token, prob, COPIED
            if votes:
                break
        for token, weight in zip(self.table.successors(tail[-1]), self.weights, strict=False):
            if token not in seen:
                yield token, left * weight, RECYCLED


def make(kit: Kit, drafter: str = "eagle2", given: Mapping[str, Any] = NOTHING, price: float | None = None,
         weights: tuple[float, ...] = WEIGHTS, longest: int = 3) -> Lengthened:
    """The drafter by the name of its card, with the parameters `given`; n-grams have 2 to `longest` tokens.

    Without a price the kit's cost curve says which added nodes are worth their rows.
    """
    if longest < 2:
        raise Refusal(f"an n-gram to copy after has at least 2 tokens, got longest={longest}")
    positions = kit.index(f"{longest}-gram positions", lambda: NgramPositions(longest))
    return Lengthened(kit.part(drafter, **given), shared_table(kit), positions,
                      *node_costs(kit, GAIN, price), tuple(weights))


CARD = Card(NAME, idea="go on below a drafter's tree with copies and recycled successors", source="ours", make=make,
            parts=("eagle2",), named=naming(drafter="what"), notebook="24b_what_lengthened", off_path=True)
