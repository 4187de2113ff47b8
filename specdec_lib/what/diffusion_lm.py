"""Diffusion: a small diffusion language model drafts a block of tokens in one forward, or in a few.

Sources: Christopher et al. 2024 (SpecDiff) for drafting with a diffusion model; Li et al. 2025 (DiffuSpec, arXiv
2510.02358) for one that shares the target's tokenizer. It reads tokens only, so it works with any target, and after
rounds of other drafters it processes only the tokens it missed. The slots of one step are predicted independently of
each other. The draft takes the best token of each slot: a chain of deterministic nodes whose confidence is the token's
probability in its slot. Cost: one forward of the drafter per denoising step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import grow, with_notes
from specdec_lib.types import Budget, Draft, Lattice, RandomNumbers, Refusal, Session

if TYPE_CHECKING:
    from specdec_lib.heads.diffusion import DiffusionLM

NAME, ALIGNED = "diffusion-lm", "diffusion-lm-aligned"


@dataclass(frozen=True)
class Diffusion:
    """The argmax chain of `head` in `steps` denoising steps; the note `unseen` counts text beyond its window.

    The block has `block` slots, or as many as are drafted if that is more.
    """

    head: DiffusionLM
    steps: int = 1
    block: int = 1

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        depth = min(budget.depth, budget.size)
        if depth < 1:
            return Draft()
        scores = self.head.scores(session.tokens, max(depth, self.block), self.steps)
        draft = grow(replace(session, sampling=None), budget, dice, lambda draft: scores, NAME)
        unseen = self.unseen(session, depth)
        return with_notes(draft, unseen=unseen) if unseen else draft

    def lattice(self, session: Session, depth: int, top: int = 16) -> Lattice:
        """The `top` most probable tokens of the first `depth` slots of the same block, [depth, top], on the device.

        Log-probabilities are of each slot's whole distribution. ValueError for no slots.
        """
        whole = self.head.lattice(session.tokens, max(depth, self.block) if depth > 0 else depth, self.steps, top)
        return Lattice(whole.ids[:depth], whole.logp[:depth])

    def unseen(self, session: Session, depth: int) -> int:
        """Number of leading tokens of the text outside the window for a draft of this depth."""
        return self.head.unseen(len(session.tokens), max(depth, self.block))


def make(kit: Kit, steps: int = 1, block: int = 1, window: int | None = None, weights: str = NAME) -> Diffusion:
    """At least `block` slots; `window` bounds the tokens of text and block, by default to the model's context.

    `weights` names the checkpoint: diffusion-lm, or diffusion-lm-aligned, trained further to draft in one step
    (SpecDiff-2).
    """
    from specdec_lib.heads.base import shared_weights
    from specdec_lib.heads.diffusion import diffusion_lm
    from specdec_lib.heads.dream_llada import Pretrained

    if steps < 1 or block < 1:
        raise Refusal(f"block and steps must be at least 1, got {block} and {steps}")
    if weights not in (NAME, ALIGNED):
        raise Refusal(f"weights must be {NAME} or {ALIGNED}, got {weights!r}")
    if weights not in kit.checkpoints:
        raise Refusal(f"the checkpoint {weights} is missing: `specdec train {weights}` makes it")
    given = kit.checkpoints[weights]
    pretrained = isinstance(given, Pretrained)
    head = given.head(window) if pretrained else diffusion_lm(given, shared_weights(kit.target), window)
    head.unseen(0, block)                          # refuses a block without room now
    return Diffusion(head, steps, block)


CARD = Card(NAME, idea="a small diffusion model drafts a block in one forward",
            source="Christopher et al. 2024, SpecDiff", make=make, needs=(NAME,), notebook="28_what_diffusion_lm")
