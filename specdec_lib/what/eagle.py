"""EAGLE: one trained layer drafts from the hidden states of the target's own layers.

Source: Li et al. 2024 (EAGLE); Li et al. 2025 (EAGLE-3: several taps, trained on its own steps). Cost: one pass
through a single layer per drafted token. A prompt of one token has no hidden state yet, so its first draft is empty.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from specdec_lib.cards import Card, Kit
from specdec_lib.scores import Scores
from specdec_lib.sharing import ScoresRequest
from specdec_lib.trees import grow, growing
from specdec_lib.types import Budget, Draft, RandomNumbers, Session

if TYPE_CHECKING:
    from specdec_lib.heads.eagle import EagleHead
    from specdec_lib.heads.eagle_joint import ChainRequest
    from specdec_lib.models.llama.decoder import Transformer

NAME = "eagle"


@dataclass(frozen=True)
class Eagle:
    """A chain drawn from `head` under the session's sampling."""

    head: EagleHead

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        if len(session.tokens) < 2:
            return Draft()
        if self.chains(session, budget) or self.runs_through(session, budget):
            scores = self.head.chain(session.tokens, min(budget.depth, budget.size))
            return grow(session, budget, dice, lambda draft: scores, NAME)
        return grow(session, budget, dice, lambda draft: self.head(session.tokens, draft), NAME)

    def chains(self, session: Session, budget: Budget) -> bool:
        """Whether the head scores all tokens at once: one transfer instead of one each, where the host would wait."""
        greedy = session.sampling is None or session.sampling.greedy
        return self.head.on_device and greedy and min(budget.depth, budget.size) > 0

    def runs_through(self, session: Session, budget: Budget) -> bool:
        """Whether one call of compiled code drafts the whole chain: it is greedy, and no policy may stop it."""
        greedy = session.sampling is None or session.sampling.greedy
        whole = self.head.compiled is not None and budget.stop is None
        return whole and greedy and min(budget.depth, budget.size) > 0

    def asking(self, session: Session, budget: Budget,
               dice: RandomNumbers) -> Generator[ScoresRequest | ChainRequest, Scores, Draft]:
        """The same without its forwards: yields what is to be scored, and is sent the scores.

        Where one call drafts the whole chain it is made here: it is faster than a shared forward for every token.
        """
        from specdec_lib.heads.eagle_joint import ChainRequest

        if len(session.tokens) < 2 or self.runs_through(session, budget):
            return self(session, budget, dice)
        if self.chains(session, budget):
            scores = yield ChainRequest(self.head, session.tokens, min(budget.depth, budget.size))
            return grow(session, budget, dice, lambda draft: scores, NAME)
        return (yield from growing(session, budget, dice, partial(ScoresRequest, self.head, session.tokens), NAME))


def make(kit: Kit, text_tokens: bool = True) -> Eagle:
    """Taps the kit's target; weights are packed once for all decodes.

    `text_tokens`: the text's own tokens can be drafted as well as those that the head was trained to draft.
    """
    from specdec_lib.heads.eagle import eagle_head

    return Eagle(eagle_head(kit.checkpoints["eagle"], cast("Transformer", kit.target), text_tokens))


CARD = Card(NAME, idea="one trained layer drafts from the target's hidden states", source="Li et al. 2025, EAGLE-3",
            make=make, needs=("eagle",), notebook="24_what_eagle", reads_states=True)
