"""Multi-sequence: one token budget for one long draft or for several short ones with different first tokens.

Source: DuoDecoding (Lv et al. 2025, arXiv 2503.00784), dynamic multi-sequence drafting. Two tokens are drafted
greedily, with log-probabilities l1 and l2. There is one sequence more for each following rank i = 2, 3, ... whose
*first* token has a log-probability above l1 + l2, the first rank that has not ending the count: such a token is
likelier to come next than both tokens of the main path together. The number is rounded down to a divisor of the budget,
which the sequences share equally. All tokens are greedy, so all nodes are deterministic and drafting needs no random
numbers. Cost: a small forward for each token of a sequence, and one more where there are several.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from math import log

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import grow_chains, likeliest, readable, with_node
from specdec_lib.types import LM, ROOT, Budget, Draft, RandomNumbers, Refusal, Session

NAME = "multi-sequence"


@dataclass(frozen=True)
class MultiSequence:
    """Up to `most` greedy chains of equal length from the likeliest first tokens, together the budget's nodes."""

    model: LM
    most: int = 8                                  # sequences; 1 drafts the greedy chain

    def __post_init__(self):
        if self.most < 1:
            raise Refusal(f"most must be at least 1 sequence, got {self.most}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        def ask(draft: Draft):
            return self.model(session.tokens, draft)

        budget = readable(budget, self.model, session)
        if not budget.size:
            return Draft()
        greedy = replace(session, sampling=None)
        scores = ask(Draft())
        ranked = likeliest(scores, 0, self.most)
        probs = [scores.stats(0, token).prob for token in ranked]
        draft = with_node(Draft(), ROOT, ranked[0], None, scores.stats(0, ranked[0]), NAME)
        if min(self.most, budget.size, budget.depth) > 1:
            draft = grow_chains(greedy, budget, dice, ask, draft, 2, NAME)
        second = draft.confidence[1] if len(draft) > 1 else 1.0          # nothing follows: the main path is certain
        k = divisor_below(sequences(probs, second), budget.size)
        if len(draft) > budget.size // k:                   # then the second token is not part of it
            draft = draft.keep((0,))
        for token in ranked[1:k]:
            draft = with_node(draft, ROOT, token, None, scores.stats(0, token), NAME)
        return grow_chains(greedy, budget, dice, ask, draft, min(budget.depth, budget.size // k), NAME)


def sequences(first: list[float], second: float) -> int:
    """1 + the consecutive ranks from the second on whose first token is likelier than the main path's two tokens.

    `first` are the probabilities of the ranked first tokens, `second` that of the main path's second token.
    """
    both = logprob(first[0]) + logprob(second)
    return 1 + len(list(takewhile(lambda prob: logprob(prob) > both, first[1:])))


def logprob(prob: float) -> float:
    return log(prob) if prob > 0 else -float("inf")


def divisor_below(most: int, budget: int) -> int:
    """The largest divisor of the budget that is not above `most`."""
    return next(k for k in range(min(most, budget), 0, -1) if budget % k == 0)


def make(kit: Kit, most: int = 8) -> MultiSequence:
    assert kit.draft is not None                   # the card needs it
    return MultiSequence(kit.draft.fresh(), most)


CARD = Card(NAME, idea="one long draft, or several short ones where first tokens compete",
            source="DuoDecoding, arXiv 2503.00784", make=make, needs=("draft",), notebook="54_duodecoding")
