"""Denoised: a diffusion draft filled in several steps, its last tokens drawn and tested by their own law.

Source: Christopher et al. 2024 (SpecDiff, arXiv 2408.05636), there with the ratio test for every token. A step asks for
the laws of all open slots and commits a share of them; the last one draws all that are left, each from its own law,
apart from each other. What is *committed before the last step* is certain. What is *drawn in the last step* carries its
law, the one row of that forward.

Why that law keeps the promise of `q`, though its forward saw committed tokens on both sides: a committed token here is
the best one of its slot, so all of them follow from the text alone, and nothing random stands to the right of a drawn
token that its law knows of. Given its path its law is that row and no other. (Had they been drawn, it would still do:
given all of them every node left is drawn from its row, and a certain node is tested as the constant that it is then.)
What breaks the law is the ratio test for *all* slots, in whatever order they were filled: a slot filled early shows
itself to laws left of it, and one whose token was chosen as the surest was not drawn from its row. The paper draws the
committed tokens, too; since they reach the target as certain, the best one is kept most often.

At temperature 0 nothing is drawn, and this is the plain drafter with as many steps. With one step all is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from specdec_lib.heads.diffusion import DiffusionLM
from specdec_lib.scores import Distribution, Scores
from specdec_lib.trees import grow, with_notes
from specdec_lib.types import Budget, Card, Draft, Kit, Refusal, Session

NAME = "denoised"


@dataclass(frozen=True)
class MultistepDiffusion:
    """A chain of `head` in `steps` denoising steps: best tokens first, the rest drawn under the session's sampling.

    The block has `block` slots, however few of them are drafted, or as many as are drafted where that is more.
    """

    head: DiffusionLM
    steps: int = 2
    block: int = 1

    def __call__(self, session: Session, budget: Budget, dice) -> Draft:
        depth = min(budget.depth, budget.size)
        if depth < 1:
            return Draft()
        slots = max(depth, self.block)
        scores = Filled(*self.head.denoise(session.tokens, slots, self.steps), self.head.ids)
        draft = grow(session, budget, dice, lambda draft: scores, NAME)
        unseen = self.head.unseen(len(session.tokens), slots)
        return with_notes(draft, unseen=unseen) if unseen else draft


class Filled(Scores):
    """Rows of a denoised block, of which those `committed` (slot -> token) have no law but their token."""

    def __init__(self, logp: Tensor, committed: Mapping[int, int], ids: Tensor):
        super().__init__(logp, ids)
        self.committed = committed

    def distribution(self, row: int, sampling=None) -> Distribution:
        if row in self.committed:
            return Distribution.point_mass(self.committed[row])
        return super().distribution(row, sampling)


def make(kit: Kit, steps: int = 2, block: int = 1, settings: Mapping | None = None) -> MultistepDiffusion:
    """`settings` are parameters of the diffusion-lm whose network is asked, such as its window."""
    if steps < 1 or block < 1:
        raise Refusal(f"a block has one slot or more and is filled in one step or more, got {block} and {steps}")
    return MultistepDiffusion(kit.part("diffusion-lm", **(settings or {})).head, steps, block)


CARD = Card(NAME, idea="fill a block in several steps, draw and test the tokens of the last one",
            source="Christopher et al. 2024, SpecDiff", make=make, parts=("diffusion-lm",),
            notebook="42_specdiff2")
