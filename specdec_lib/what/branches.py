"""Branches: at an uncertain position draft the few likeliest first tokens, and continue each of them.

Source: SpecBranch (arXiv 2506.01979), branch resampling. With the drafter's best token x at the first
position there are k = max(1, floor(most * (1 - q(x)))) branches. One is drawn from `q`, like any drafted token; several
are the k likeliest tokens as deterministic proposals. Under `rejection` those are accepted exactly as often as by the
rule "draw y from the target and look for it among them". k is read from the distribution alone, so `q` keeps its
promise. Each branch goes on as a chain drawn from the model, all of them in one tree: a forward of the model for each
depth. Cost: as many small forwards as the longest branch has tokens, each k tokens wide.

The number of branches is this part's own, within the budget's nodes: the width of a policy is for the levels below, and
one that allows no more nodes than its depth divides them between the branches.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import grow_chains, likeliest, readable, with_node
from specdec_lib.types import LM, ROOT, Budget, Draft, RandomNumbers, Refusal, Session

NAME = "branches"


@dataclass(frozen=True)
class Branches:
    """Up to `most` first tokens, each continued by a chain drawn from `model`."""

    model: LM
    most: int = 3                                  # k_max; 1 drafts the chain of `draft-model`

    def __post_init__(self):
        if self.most < 1:
            raise Refusal(f"most must be at least 1 branch, got {self.most}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        def ask(draft: Draft):
            return self.model(session.tokens, draft)

        budget = readable(budget, self.model, session)
        if not budget.size:
            return Draft()
        scores = ask(Draft())
        best = scores.stats(0, scores.best[0]).prob
        k = min(branches_at(best, self.most), budget.size)
        drawn = scores.distribution(0, session.sampling) if k == 1 else None
        heads = likeliest(scores, 0, k) if drawn is None else (dice.at(len(session.tokens)).choose(drawn),)
        draft = Draft()
        for token in heads:
            draft = with_node(draft, ROOT, token, drawn, scores.stats(0, token), NAME)
        return grow_chains(session, budget, dice, ask, draft, budget.depth, NAME)


def branches_at(best: float, most: int) -> int:
    """Branches where the drafter's best token has this probability: max(1, floor(most * (1 - best)))."""
    return max(1, int(most * (1 - best)))


def make(kit: Kit, most: int = 3) -> Branches:
    assert kit.draft is not None                   # the card needs it
    return Branches(kit.draft.fresh(), most)


CARD = Card(NAME, idea="the likeliest first tokens where the drafter is uncertain, each continued",
            source="SpecBranch, arXiv 2506.01979", make=make, needs=("draft",), notebook="52_specbranch")
