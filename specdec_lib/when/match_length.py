"""Match length: copy where the longest match is long, else use the other drafter.

Source: Hu et al. 2024 (SAM-Decoding). Rule: copy if the match is worth at least 5 tokens, where a match in the corpus
counts as 5 tokens shorter than it is and a tie goes to the session's own text. The published rule drafts 40 tokens
whatever a forward costs; here both budgets come from the measured cost curve. Cost: one look-up, no model pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.index.matcher import Matcher, shared_matcher
from specdec_lib.trees import stop_when_unlikely
from specdec_lib.types import Budget, RandomNumbers, Refusal, Session

COPY = "suffix-automaton"


@dataclass(frozen=True)
class MatchLength:
    """`copy` where the longest match is worth at least `threshold` tokens, else `other`."""

    matcher: Matcher
    copy: Budget
    other: Budget
    threshold: int = 5

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        long = self.matcher.find(session.tokens).worth >= self.threshold
        return self.copy.then(self.other) if long else self.other


def make(kit: Kit, threshold: int = 5, other: str = "token-recycling", depth: int | None = None,
         width: int = 8, nodes: int | None = None, copy: int | None = None, least: float = 0.0) -> MatchLength:
    """A chain of `copy` tokens where it copies, else a tree of `depth`, `width` and `nodes` from the drafter `other`.

    All three lengths default to the nodes that the cost curve allows. `least` stops a tree below a path of lower
    probability.
    """
    if threshold < 1:
        raise Refusal(f"threshold must be at least 1 token, got {threshold}")
    depth, nodes = kit.nodes if depth is None else depth, kit.nodes if nodes is None else nodes
    tree = stop_when_unlikely(Budget.of(other, depth, width, nodes), least)
    return MatchLength(shared_matcher(kit), Budget.of(COPY, depth if copy is None else copy), tree, threshold)


CARD = Card("match-length", idea="copy where the match is long, else use the other drafter",
            source="Hu et al. 2024, SAM-Decoding", make=make, notebook="10_when_fixed")
