"""EveryDice: runs every branch of a random computation, so that its output distribution is enumerated, not sampled."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from specdec_lib.scores import Categorical


class EveryDice:
    """Dice that follow a script of choices and, after its end, record the alternatives of each choice."""

    def __init__(self, script: tuple[int, ...] = ()):
        self.script, self.taken, self.prob, self.open = script, [], 1.0, []

    def at(self, position: int) -> EveryDice:
        return self

    def aside(self) -> EveryDice:
        return self

    def fork(self, *key) -> EveryDice:
        return self

    def flip(self, prob: float) -> bool:
        if prob >= 1 or prob <= 0:
            return prob >= 1
        return self._branch([prob, 1 - prob]) == 0

    def choose(self, dist: Categorical) -> int:
        if dist.only is not None:
            return dist.only
        return int(dist.ids[self._branch(dist.probs.tolist())])

    def _branch(self, probs: list[float]) -> int:
        step = len(self.taken)
        if step < len(self.script):
            pick = self.script[step]
        else:
            possible = [i for i, prob in enumerate(probs) if prob > 0]
            pick = possible[0]
            self.open += [(*self.taken, other) for other in possible[1:]]
        self.taken.append(pick)
        self.prob *= probs[pick]
        return pick


def every_outcome(run: Callable[[EveryDice], Hashable]) -> dict[Hashable, float]:
    """The exact distribution of the result of `run(dice)`: outcome -> probability, over every branch of its draws."""
    dist: dict[Hashable, float] = {}
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        dice = EveryDice(waiting.pop())
        outcome = run(dice)
        dist[outcome] = dist.get(outcome, 0.0) + dice.prob
        waiting += dice.open
    return dist


def distance(one: dict, other: dict) -> float:
    """Total variation distance between two enumerated distributions."""
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys()) / 2
