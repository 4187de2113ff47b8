"""Heuristic: two tokens more after a draft that was accepted whole, one fewer otherwise.

Source: transformers' `heuristic` schedule for `num_assistant_tokens` (start 5, floor 1) [read in its code]; SVIP caps
it at 40 in its baseline. Here the cap comes from the measured cost curve. Folded from the history; no state is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from specdec_lib.types import Budget, Card, Kit, Round, Session


@dataclass(frozen=True)
class Heuristic:
    """The schedule, transient: each prompt starts at `start` again. Rounds that drafted nothing change nothing."""

    start: int = 5
    up: int = 2
    down: int = 1
    cap: int = 40

    def __call__(self, session: Session, dice) -> Budget:
        return Budget(min(self.cap, reduce(self.next, session.rounds, self.start)))

    def next(self, depth: int, round: Round) -> int:
        """The depth after one more round."""
        drafted = round.draft.depth
        if drafted == 0:
            return depth
        return min(self.cap, depth + self.up) if len(round.verdict.path) == drafted else max(1, depth - self.down)


def make(kit: Kit, start: int = 5, up: int = 2, down: int = 1, cap: int | None = None) -> Heuristic:
    """The cap defaults to twice the nodes that the cost curve calls cheap."""
    return Heuristic(start, up, down, 2 * kit.nodes if cap is None else cap)


CARD = Card("heuristic", idea="longer after success, shorter after failure", source="transformers, heuristic schedule",
            make=make, notebook="17_when_confidence")
