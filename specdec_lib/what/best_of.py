"""Best of: several drafters draft, and the one that expects the most accepted tokens is submitted.

Source: ours. What a draft expects is the sum over its nodes of the product of beliefs along the path. That
choice looks at drawn tokens, so the survivors were not drawn from `q` given their path alone: their laws are
dropped and every node is submitted as certain, which is always lossless and accepted less often when
sampling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specdec_lib.types import ROOT, Budget, Card, Draft, Kit, Session, What


@dataclass(frozen=True)
class BestOf:
    """Drafters by name; a tie goes to the earlier one."""

    drafters: Mapping[str, What]
    unknown: float = 0.5                           # belief in a node whose drafter does not say

    def __call__(self, session: Session, budget: Budget, dice) -> Draft:
        drafts = [draw(session, budget, dice.fork(name)) for name, draw in self.drafters.items()]
        return max(drafts, key=lambda draft: expected(draft, self.unknown), default=Draft()).bare()


def expected(draft: Draft, unknown: float = 0.5) -> float:
    """Accepted tokens that a draft expects of itself."""
    reach = {ROOT: 1.0}
    for node, parent in enumerate(draft.parents):
        reach[node] = reach[parent] * (draft.confidence[node] if draft.confidence else unknown)
    return sum(reach.values()) - 1.0


def make(kit: Kit, drafters: tuple[str, ...] = ("suffix-automaton", "token-recycling")) -> BestOf:
    """Drafters by the names of their cards."""
    return BestOf({name: kit.part(name) for name in drafters})


CARD = Card("best-of", idea="ask several drafters, submit the most hopeful draft", source="ours", make=make,
            parts=("suffix-automaton", "token-recycling"), notebook="03_one_loop", off_path=True)
