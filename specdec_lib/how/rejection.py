"""Rejection: accept with chance p/q, on refusal draw from what the draft did not already offer.

Source: Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023 (arXiv 2302.01318); for siblings one after another,
SpecInfer (arXiv 2305.09781). At a node the children are tried in order: x from q is accepted with chance
min(1, p(x) / q(x)); after a refusal p becomes norm(max(0, p - q)). A certain child is the case of q(x) = 1.
Lossless at every temperature as long as `q` keeps its promise (see `Draft`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specdec_lib.scores import Distribution, Scores
from specdec_lib.types import ROOT, Card, Draft, Session, Verdict


@dataclass(frozen=True)
class Rejection:
    """Walks down the tree; at temperature 0 every law has a support of one, and this is a comparison of tokens."""

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice) -> Verdict:
        path: list[int] = []
        node = ROOT
        while True:
            coins = dice.at(len(session.tokens) + len(path))
            p = scores.distribution(node + 1, session.sampling)
            for child in draft.children.get(node, ()):
                token, q = draft.tokens[child], draft.distribution(child)
                if coins.flip(acceptance(p, q, token)):
                    path.append(child)
                    break
                p = residual(p, q, token)
            else:
                return Verdict.of(draft, tuple(path), coins.choose(p))
            node = path[-1]


def acceptance(p: Distribution, q: Distribution | None, token: int) -> float:
    """min(1, p(x) / q(x)); p(x) itself for a certain token."""
    return p.probability(token) if q is None else min(1.0, p.probability(token) / q.probability(token))


def residual(p: Distribution, q: Distribution | None, token: int) -> Distribution:
    """norm(max(0, p - q)), on the support of p; for a certain token, p without it."""
    if len(p.ids) == 1:
        return p                                   # a refused certain law was not this token: nothing to take away
    left = p.probs.clone()
    if q is None:
        left[p.ids == token] = 0
    else:
        left = (left - onto(q, p.ids).to(left)).clamp(min=0)
    total = left.sum()
    return Distribution(p.ids, left / total) if total > 0 else p  # p = q up to rounding: nothing was refused but noise


def onto(dist: Distribution, ids: torch.Tensor) -> torch.Tensor:
    """The chances of `law` at these ids [m]; zero where it has none."""
    if len(dist.ids) == len(ids) and torch.equal(dist.ids, ids):
        return dist.probs
    order = torch.argsort(dist.ids)
    known = dist.ids[order]
    place = torch.searchsorted(known, ids).clamp(max=len(known) - 1)
    return torch.where(known[place] == ids, dist.probs[order][place], torch.zeros_like(dist.probs[:1]))


CARD = Card("rejection", idea="accept with chance p/q, else draw from the residual",
            source="Leviathan et al. 2023; Chen et al. 2023", make=lambda kit: Rejection(),
            notebook="30_how_rejection")
