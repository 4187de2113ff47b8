"""Speculative draft: a draft model that itself speculates with retrieved tokens, for more tokens per small forward.

Source: Double (arXiv 2601.05524), iterative retrieval of the drafter; the paper's rule is known here second hand, this
is our reading. Each forward of the draft model scores what retrieval proposes and accepts it by a lossless rule, so a
forward gives one token and as many retrieved ones as were accepted. The stream is distributed as if the model had drawn
each token, so its rows are `q` and the target's test stays valid; how long the chain gets depends on accepted tokens
alone, never on later ones. The budget's note FORWARDS limits the model's forwards; without it there are at most as many
as tokens. Cost: those small forwards, each as wide as what was retrieved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec_lib.cards import Card, Kit
from specdec_lib.speculate import as_draft, speculate
from specdec_lib.trees import readable
from specdec_lib.types import FORWARDS, LM, Budget, Draft, How, RandomNumbers, Refusal, Session, What

NAME = "speculative-draft"


@dataclass(frozen=True)
class SpeculativeDraft:
    """A chain of the draft model's own tokens, up to 1 + `retrieved` for each of its forwards."""

    model: LM
    retriever: What
    rule: How                                      # lossless, else the chain is not distributed as `q`
    retrieved: int = 8                             # d: tokens that one forward may verify

    def __post_init__(self):
        if self.retrieved < 0:
            raise Refusal(f"retrieved must be zero or more tokens, got {self.retrieved}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        budget = readable(budget, self.model, session)
        longest, draft = min(budget.depth, budget.size), Draft()
        for turn in range(budget.notes.get(FORWARDS, longest)):
            if len(draft) == longest or (len(draft) and draft.tokens[-1] in session.end):
                break
            here = replace(session, tokens=session.tokens + draft.tokens, remaining=longest - len(draft))
            asked = Budget(self.retrieved).within(here)
            found = speculate(here, asked, self.model, self.retriever, self.rule, dice.fork(turn))
            draft, stopped = extended(draft, as_draft(here, found, NAME), budget)
            if stopped:
                break
        return draft


def extended(draft: Draft, more: Draft, budget: Budget) -> tuple[Draft, bool]:
    """The chain with these tokens behind it, up to the first at which the budget's rule stops; and whether it does."""
    for node, token in enumerate(more.tokens):
        draft = Draft(draft.tokens + (token,), draft.parents + (len(draft) - 1,), draft.q + (more.distribution(node),),
                      draft.stats + (more.stats[node],), draft.source + (NAME,),
                      draft.confidence + (more.stats[node].prob,))
        if budget.stop and budget.stop(draft.stats):
            return draft, True
    return draft, False


def make(kit: Kit, retriever: str = "suffix-automaton", retrieved: int = 8) -> SpeculativeDraft:
    """`retriever` is any part that needs no forward of a model."""
    assert kit.draft is not None                   # the card needs it
    return SpeculativeDraft(kit.draft.fresh(), kit.part(retriever), kit.part("rejection"), retrieved)


CARD = Card(NAME, idea="a draft model that verifies retrieved tokens with each of its forwards",
            source="Double, arXiv 2601.05524", make=make, needs=("draft",), notebook="55_double")
