"""Heuristic: draft two tokens more after a fully accepted draft, one fewer otherwise.

Source: transformers' schedules for `num_assistant_tokens` (start 5 in older releases, 20 with a constant length today;
floor 1) [read in its code]; SVIP caps its baseline at 40. Here the cap comes from the measured cost curve. The depth is
computed from the session's rounds. `heuristic_transient` starts again with every prompt, as this does by default;
`heuristic` continues from prompt to prompt, as `remember` does here; the last round of a decode counts. Cost: no model
pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from specdec_lib.cards import Card, Kit
from specdec_lib.memory.value import carried_value
from specdec_lib.running_fold import RunningFold
from specdec_lib.types import Budget, RandomNumbers, Refusal, Round, Session


@dataclass(frozen=True)
class Heuristic:
    """The schedule from `start`, or from the depth after earlier prompts. Rounds without a draft change nothing."""

    start: int = 5
    up: int = 2
    down: int = 1
    cap: int = 40
    fold: RunningFold = field(default_factory=RunningFold, init=False, repr=False, compare=False)

    def __post_init__(self):
        if self.start < 1 or self.cap < 1 or self.up < 0 or self.down < 0:
            raise Refusal(f"start and cap must be at least 1, up and down zero or more, got {self.start}, {self.cap}, "
                          f"{self.up} and {self.down}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        return Budget(min(self.cap, self.after(self.start, session)))

    def after(self, depth: int, session: Session) -> int:
        """The depth at the end of a decode that began with `depth`."""
        return self.fold(self.next, session.rounds, depth)

    def next(self, depth: int, round: Round) -> int:
        """The depth after one more round."""
        drafted = round.draft.depth
        if drafted == 0:
            return depth
        return min(self.cap, depth + self.up) if len(round.verdict.path) == drafted else max(1, depth - self.down)


def make(kit: Kit, start: int = 5, up: int = 2, down: int = 1, cap: int | None = None,
         remember: bool = False) -> Heuristic:
    """The cap defaults to twice the nodes that the cost curve allows; `remember` carries the depth across prompts."""
    cap = 2 * kit.nodes if cap is None else cap
    rule = Heuristic(start, up, down, cap)
    if not remember:
        return rule
    return replace(rule, start=carried_value(kit, f"heuristic {start} {up} {down} {cap}", start, rule.after))


CARD = Card("heuristic", idea="longer after success, shorter after failure", source="transformers, heuristic schedule",
            make=make, notebook="17_when_confidence", learns_across_prompts=True)
