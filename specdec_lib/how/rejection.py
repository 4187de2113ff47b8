"""Rejection: accept with probability p/q; after a rejection, draw from the residual that the draft did not offer.

Source: Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023 (arXiv 2302.01318). Siblings are tested in order: x
from q is accepted with probability min(1, p(x) / q(x)); after a rejection p becomes norm(max(0, p - q)). With siblings
drawn without replacement this is recursive rejection sampling (RSD, Jeon et al. 2024, arXiv 2402.14160; used in
Sequoia, Chen et al. 2024, arXiv 2402.12374); with independent draws it is SpecInfer's multi-step speculative sampling
(Miao et al. 2023, arXiv 2305.09781). A deterministic proposal is the case q(x) = 1. Lossless at every temperature as
long as `q` keeps its promise (see `Draft`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from specdec_lib.cards import Card
from specdec_lib.scores import Distribution, Scores
from specdec_lib.types import ROOT, Draft, RandomNumbers, Refusal, Session, Verdict


@dataclass(frozen=True)
class Rejection:
    """Walks down the tree; at temperature 0 every distribution is a point mass, and this compares tokens."""

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice: RandomNumbers) -> Verdict:
        path: list[int] = []
        node = ROOT
        while True:
            here = dice.at(len(session.tokens) + len(path))
            p = cast(Distribution, scores.distribution(node + 1, session.sampling))
            for child in draft.children.get(node, ()):
                token, q = draft.tokens[child], draft.distribution(child)
                if here.flip(acceptance(p, q, token)):
                    path.append(child)
                    break
                p = p.residual(q, token)
            else:
                return Verdict.of(draft, tuple(path), p.draw(here))
            node = path[-1]


def acceptance(p: Distribution, q: Distribution | None, token: int) -> float:
    """Probability min(1, p(x) / q(x)) of accepting `token`; p(x) itself for a deterministic proposal (q is None)."""
    if q is None:
        return p.probability(token)
    try:
        chance = min(1.0, p.probability(token) / q.probability(token))
    except ZeroDivisionError:
        chance = -1.0
    if chance < 0:
        raise Refusal(f"a draft holds token {token} with q = {q.probability(token)}: q is what it was drawn from,"
                      " and above 0 there; a token that was not drawn has None")
    return chance


CARD = Card("rejection", idea="accept with probability p/q, else draw from the residual",
            source="Leviathan et al. 2023; Chen et al. 2023", make=lambda kit: Rejection(),
            notebook="30_how_rejection")
