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

import torch

from specdec_lib.scores import Distribution, Scores
from specdec_lib.types import ROOT, Card, Draft, Session, Verdict


@dataclass(frozen=True)
class Rejection:
    """Walks down the tree; at temperature 0 every distribution is a point mass, and this compares tokens."""

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice) -> Verdict:
        path: list[int] = []
        node = ROOT
        while True:
            here = dice.at(len(session.tokens) + len(path))
            p = scores.distribution(node + 1, session.sampling)
            for child in draft.children.get(node, ()):
                token, q = draft.tokens[child], draft.distribution(child)
                if here.flip(acceptance(p, q, token)):
                    path.append(child)
                    break
                p = residual(p, q, token)
            else:
                return Verdict.of(draft, tuple(path), here.choose(p))
            node = path[-1]


def acceptance(p: Distribution, q: Distribution | None, token: int) -> float:
    """Probability min(1, p(x) / q(x)) of accepting `token`; p(x) itself for a deterministic proposal (q is None)."""
    return p.probability(token) if q is None else min(1.0, p.probability(token) / q.probability(token))


def residual(p: Distribution, q: Distribution | None, token: int) -> Distribution:
    """norm(max(0, p - q)) on the support of p; for a deterministic proposal, p without that token."""
    if len(p.ids) == 1:
        return p                                   # a point mass that rejected this token holds none of it
    left = p.probs.clone()
    if q is None:
        left[p.ids == token] = 0
    else:
        left = (left - onto(q, p.ids).to(left)).clamp(min=0)
    total = left.sum()
    return Distribution(p.ids, left / total) if total > 0 else p  # p = q up to rounding


def onto(dist: Distribution, ids: torch.Tensor) -> torch.Tensor:
    """Probabilities of `dist` at these ids [m]; zero outside its support."""
    if len(dist.ids) == len(ids) and torch.equal(dist.ids, ids):
        return dist.probs
    order = torch.argsort(dist.ids)
    known = dist.ids[order]
    index = torch.searchsorted(known, ids).clamp(max=len(known) - 1)
    return torch.where(known[index] == ids, dist.probs[order][index], torch.zeros_like(dist.probs[:1]))


CARD = Card("rejection", idea="accept with probability p/q, else draw from the residual",
            source="Leviathan et al. 2023; Chen et al. 2023", make=lambda kit: Rejection(),
            notebook="30_how_rejection")
