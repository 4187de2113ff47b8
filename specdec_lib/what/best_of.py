"""Best of: several drafters draft, and the draft with the most expected accepted tokens is submitted.

Source: ours. The expectation is the sum over the nodes of a draft of the product of confidences along the path. The
choice depends on drawn tokens, so the tokens of the chosen draft were not drawn from `q` given their path alone. Their
distributions are therefore dropped and every node is submitted as deterministic, which is always lossless and is
accepted less often when sampling. Cost: that of all its drafters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.types import ROOT, Budget, Draft, RandomNumbers, Session, What


@dataclass(frozen=True)
class BestOf:
    """Drafters by name; a tie goes to the earlier one."""

    drafters: Mapping[str, What]
    unknown: float = 0.5                           # confidence of a node whose drafter gives none

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        drafts = [draw(session, budget, dice.fork(name)) for name, draw in self.drafters.items()]
        return max(drafts, key=lambda draft: expected_tokens_of_draft(draft, self.unknown), default=Draft()).bare()


def expected_tokens_of_draft(draft: Draft, unknown: float = 0.5) -> float:
    """Expected accepted tokens of a draft under its own confidences."""
    reach = {ROOT: 1.0}
    for node, parent in enumerate(draft.parents):
        reach[node] = reach[parent] * (draft.confidence[node] if draft.confidence else unknown)
    return sum(reach.values()) - 1.0


def make(kit: Kit, drafters: tuple[str, ...] = ("suffix-automaton", "token-recycling")) -> BestOf:
    """Drafters by the names of their cards."""
    return BestOf({name: kit.part(name) for name in drafters})


CARD = Card("best-of", idea="of several drafters' drafts, submit the one with the most expected tokens", source="ours",
            make=make, parts=("suffix-automaton", "token-recycling"), notebook="03_one_loop", off_path=True)
