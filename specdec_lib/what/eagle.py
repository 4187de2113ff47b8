"""EAGLE: one trained layer drafts from the hidden states of the target's own layers.

Source: Li et al. 2024 (EAGLE); Li et al. 2025 (EAGLE-3: several taps, trained on its own steps). Cost: one pass
through a single layer per drafted token. A prompt of one token has no hidden state yet, so its first draft is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import grow
from specdec_lib.types import Budget, Draft, RandomNumbers, Session

if TYPE_CHECKING:
    from specdec_lib.heads.eagle import EagleHead
    from specdec_lib.models.llama.decoder import Transformer

NAME = "eagle"


@dataclass(frozen=True)
class Eagle:
    """A chain drawn from `head` under the session's sampling."""

    head: EagleHead

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        if len(session.tokens) < 2:
            return Draft()
        depth = min(budget.depth, budget.size)
        if depth and self.head.on_device and (session.sampling is None or session.sampling.greedy):
            scores = self.head.chain(session.tokens, depth)      # one transfer for all of them
            return grow(session, budget, dice, lambda draft: scores, NAME)
        return grow(session, budget, dice, lambda draft: self.head(session.tokens, draft), NAME)


def make(kit: Kit) -> Eagle:
    """Taps the kit's target; weights are packed once for all decodes."""
    from specdec_lib.heads.eagle import eagle_head

    return Eagle(eagle_head(kit.checkpoints["eagle"], cast("Transformer", kit.target)))


CARD = Card(NAME, idea="one trained layer drafts from the target's hidden states", source="Li et al. 2025, EAGLE-3",
            make=make, needs=("eagle",), notebook="24_what_eagle")
