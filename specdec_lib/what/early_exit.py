"""Early exit: the target's own first layers draft, through a trained head after the last of them.

Source: Elhoushi et al. 2024 (LayerSkip); Zhang et al. 2024 (Draft & Verify) for drafting with part of the target. Rows
drafted up to that layer are the target's own, so verification resumes from them. Cost: the first layers and the exit
head per drafted token; verification then runs the other layers only. Beside the target (`Kit.beside`) it has a cache of
its own, and verification runs all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import grow
from specdec_lib.types import LM, Budget, Draft, RandomNumbers, Refusal, Session, TappedLM

NAME = "early-exit"


@dataclass(frozen=True)
class EarlyExit:
    """A chain drawn from `model`, an exit of the target itself, under the session's sampling."""

    model: LM

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        return grow(session, budget, dice, lambda draft: self.model(session.tokens, draft), NAME)


def make(kit: Kit, layer: int | None = None) -> EarlyExit:
    """`layer` defaults to the lowest one with a trained exit."""
    from specdec_lib.heads.exits import PACKED

    checkpoint = kit.checkpoints["early-exit"]
    trained = sorted(checkpoint.meta["layers"])
    chosen: int = trained[0] if layer is None else layer
    if chosen not in trained:
        raise Refusal(f"there is no trained exit after layer {chosen}; they are after {', '.join(map(str, trained))}")
    target = cast(TappedLM, kit.target)
    target.exit(chosen)                            # raises first if the target has no early exit
    model = target.exit(chosen, PACKED(checkpoint, target.weights)[chosen])
    return EarlyExit(model.fresh() if kit.beside else model)


CARD = Card(NAME, idea="the target's first layers draft through a trained exit",
            source="Elhoushi et al. 2024, LayerSkip", make=make, needs=("early-exit",), notebook="26_what_early_exit")
