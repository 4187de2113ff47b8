"""EveryDice: walks every branch of a random computation, so that an output law is enumerated, not sampled."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from specdec_lib.types import Law


class EveryDice:
    """Dice that follow a script of choices and note, past its end, which other choices there were."""

    def __init__(self, script: tuple[int, ...] = ()):
        self.script, self.taken, self.chance, self.open = script, [], 1.0, []

    def at(self, position: int) -> EveryDice:
        return self

    def aside(self) -> EveryDice:
        return self

    def fork(self, *key) -> EveryDice:
        return self

    def flip(self, chance: float) -> bool:
        if chance >= 1 or chance <= 0:
            return chance >= 1
        return self._branch([chance, 1 - chance]) == 0

    def choose(self, law: Law) -> int:
        if law.sure is not None:
            return law.sure
        return int(law.ids[self._branch(law.chances.tolist())])

    def _branch(self, chances: list[float]) -> int:
        step = len(self.taken)
        if step < len(self.script):
            pick = self.script[step]
        else:
            likely = [i for i, chance in enumerate(chances) if chance > 0]
            pick = likely[0]
            self.open += [(*self.taken, other) for other in likely[1:]]
        self.taken.append(pick)
        self.chance *= chances[pick]
        return pick


def every_outcome(run: Callable[[EveryDice], Hashable]) -> dict[Hashable, float]:
    """The exact law of what `run(dice)` returns: each outcome with its chance, over every branch of its coins."""
    law: dict[Hashable, float] = {}
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        dice = EveryDice(waiting.pop())
        outcome = run(dice)
        law[outcome] = law.get(outcome, 0.0) + dice.chance
        waiting += dice.open
    return law


def distance(one: dict, other: dict) -> float:
    """Total variation between two enumerated laws."""
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys()) / 2
