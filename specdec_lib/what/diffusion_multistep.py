"""Multi-step diffusion: fill a block in several steps, and test the last step's tokens by their distributions.

Source: Christopher et al. 2024 (SpecDiff, arXiv 2408.05636), who apply the ratio test to every token. Each step
computes the distributions of all open slots and commits a share of them; the last step draws all remaining slots
independently, each from its own distribution. Tokens *committed before the last step* are deterministic. Tokens *drawn
in the last step* carry their distribution, the one row of that forward. Cost: one forward of the drafter per step.

Why that distribution keeps the promise of `q`, although its forward saw committed tokens on both sides: a committed
token here is the best one of its slot, so all committed tokens follow from the text alone, and no random token to the
right of a drawn token influences its distribution. Given its path, its distribution is that row and no other. (Drawn
committed tokens would also do: given all of them every remaining node is drawn from its row, and a deterministic node
is tested as the constant that it then is.) What is not lossless is the ratio test for *all* slots, in whatever order
they were filled: a slot filled early influences distributions to its left, and a token chosen for its high probability
was not drawn from its row. The paper also draws the committed tokens; since they reach the target as deterministic, the
best one is accepted most often.

At temperature 0 nothing is drawn, and this equals the plain drafter with as many steps. With one step all slots are
drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_lib.cards import Card, Kit
from specdec_lib.scores import Categorical, RowStats, Scores
from specdec_lib.trees import grow, with_notes
from specdec_lib.types import Budget, Draft, RandomNumbers, Refusal, Session

if TYPE_CHECKING:
    from torch import Tensor

    from specdec_lib.heads.diffusion import DiffusionLM

NAME = "denoised"


@dataclass(frozen=True)
class MultistepDiffusion:
    """A chain of `head` in `steps` denoising steps: committed tokens, and the rest drawn under the session's sampling.

    The block has `block` slots, or as many as are drafted if that is more.
    """

    head: DiffusionLM
    steps: int = 2
    block: int = 1

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        depth = min(budget.depth, budget.size)
        if depth < 1:
            return Draft()
        slots = max(depth, self.block)
        logp, committed = self.head.denoise(session.tokens, slots, self.steps)
        scores = DenoisedScores(logp, committed, self.head.ids, self.head.row_stats(logp))
        draft = grow(session, budget, dice, lambda draft: scores, NAME)
        unseen = self.head.unseen(len(session.tokens), slots)
        return with_notes(draft, unseen=unseen) if unseen else draft


class DenoisedScores(Scores):
    """Rows of a denoised block; a slot in `committed` (slot -> token) has all probability on its token."""

    def __init__(self, logp: Tensor, committed: Mapping[int, int], ids: Tensor, row_stats: RowStats | None = None):
        super().__init__(logp, ids, row_stats)
        self.committed = committed

    def distribution(self, row: int, sampling=None) -> Categorical:
        if row in self.committed:
            return Categorical.point_mass(self.committed[row])
        return super().distribution(row, sampling)


def make(kit: Kit, steps: int = 2, block: int = 1, settings: Mapping | None = None) -> MultistepDiffusion:
    """`settings` are parameters of the diffusion-lm whose network is used, such as its window."""
    if steps < 1 or block < 1:
        raise Refusal(f"block and steps must be at least 1, got {block} and {steps}")
    head = kit.part("diffusion-lm", **(settings or {})).head
    head.unseen(0, block)                          # refuses a block without room now
    return MultistepDiffusion(head, steps, block)


CARD = Card(NAME, idea="fill a block in several steps, draw and test the tokens of the last one",
            source="Christopher et al. 2024, SpecDiff", make=make, parts=("diffusion-lm",),
            notebook="42_specdiff2")
