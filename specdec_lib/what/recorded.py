"""Recorded: what a drafter proposed at this prefix when the text was recorded, pruned to the budget and the stop.

Exact for drafters that depend on the committed prefix alone; a card says `off_path` where that does not hold, and such
a drafter replays its own run only. It costs no model, which is why sliders can ask it at every step.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.drafting import prune
from specdec_lib.types import Budget, Card, Draft, Session


@dataclass(frozen=True)
class Recorded:
    """The drafts of `drafter` in a recording."""

    recording: object                              # models.replay.Recording
    drafter: str

    def __call__(self, session: Session, budget: Budget, dice) -> Draft:
        return prune(self.recording.draft(self.drafter, len(session.tokens), budget.depth), budget)


CARD = Card("recorded", idea="replay what a drafter proposed", source="this workbook",
            make=lambda kit, drafter="suffix-automaton": Recorded(kit.recording, drafter), needs=("recording",),
            notebook="03_one_loop")
