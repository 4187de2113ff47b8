"""What drafters of a batch ask of their networks, answered in one forward of each network.

Drafters of one round may ask different networks, and different things of one network: a head of hidden states, a draft
model, or a model whose sequences share no forward (an n-gram, captured steps on a GPU), which answers each alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specdec_lib.heads.eagle import EagleHead
from specdec_lib.heads.eagle_joint import ChainRequest, score_chains_together, score_heads_together
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.joint import score_together, shares_forwards
from specdec_lib.scores import Scores
from specdec_lib.sharing import ScoresRequest

Request = ScoresRequest | ChainRequest
Together = Callable[[Sequence[Any]], Sequence[Scores]]


def score_drafts(asked: Sequence[Request]) -> list[Scores]:
    """The scores that each request gets alone; those that one network can answer share its forwards.

    ValueError where one cache would stand in a forward twice.
    """
    groups: dict[tuple[Together, int], list[int]] = {}
    for at, one in enumerate(asked):
        groups.setdefault(forward_of(one), []).append(at)
    found: dict[int, Scores] = {}
    for (answers, _), places in groups.items():
        some = [asked[at] for at in places]
        found |= zip(places, answers(some) if len(some) > 1 else apart(some), strict=True)
    return [found[at] for at in range(len(asked))]


def apart(asked: Sequence[Request]) -> list[Scores]:
    """The answer to each request, by the forwards of a decode alone."""
    return [one.alone() for one in asked]


def forward_of(request: Request) -> tuple[Together, int]:
    """What answers such requests at once, and a number that those of one forward have in common."""
    if isinstance(request, ChainRequest):
        return score_chains_together, id(request.head.weights)
    model = request.model
    if isinstance(model, EagleHead):
        return score_heads_together, id(model.weights)
    if isinstance(model, Transformer) and shares_forwards(model):
        return score_together, id(model.weights)
    return apart, 0
