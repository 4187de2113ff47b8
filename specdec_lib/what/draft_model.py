"""Draft model: a smaller language model draws the draft, token by token.

Source: Leviathan et al. 2023; Chen et al. 2023. The kit provides the model, which is any model with the target's
tokenizer: one of the family, a trained `draft-lm`, an n-gram, or the target's first layers. At temperature 0 its nodes
are deterministic. Cost: one small forward per drafted token; its cache aligns itself to the accepted tokens. On a GPU a
greedy chain is one launch (`models/llama/greedy_chain.py`); a policy that would stop it cuts it afterwards.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from specdec_lib.cards import Card
from specdec_lib.scores import Scores
from specdec_lib.sharing import ScoresRequest
from specdec_lib.trees import grow, growing, readable
from specdec_lib.types import LM, Budget, Draft, RandomNumbers, Session

if TYPE_CHECKING:
    from specdec_lib.models.llama.decoder import Transformer

NAME = "draft-model"


@dataclass(frozen=True)
class DraftModel:
    """A chain drawn from `model` under the session's sampling, as far as its context reaches."""

    model: LM

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        room = readable(budget, self.model, session)
        count = min(room.depth, room.size)
        if count and self.at_once(session):
            from specdec_lib.models.llama.greedy_chain import greedy_chain

            scores = greedy_chain(cast("Transformer", self.model), session.tokens, count)
            return grow(session, room, dice, lambda draft: scores, NAME)
        return grow(session, room, dice, lambda draft: self.model(session.tokens, draft), NAME)

    def at_once(self, session: Session) -> bool:
        """Whether one launch drafts the whole chain, where the host would otherwise wait for every token."""
        device, greedy = getattr(self.model, "device", None), session.sampling is None or session.sampling.greedy
        if not greedy or device is None or device.type == "cpu":
            return False
        from specdec_lib.models.llama.greedy_chain import chains

        return chains(self.model)

    def asking(self, session: Session, budget: Budget,
               dice: RandomNumbers) -> Generator[ScoresRequest, Scores, Draft]:
        """The same without its forwards: yields each draft that is to be scored and is sent its scores."""
        room = readable(budget, self.model, session)
        return growing(session, room, dice, partial(ScoresRequest, self.model, session.tokens), NAME)


CARD = Card(NAME, idea="a small model drafts token by token", source="Leviathan et al. 2023",
            make=lambda kit: DraftModel(kit.draft.fresh()), needs=("draft",), notebook="23_what_draft_model")
