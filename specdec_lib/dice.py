"""Dice: the only source of random numbers, passed last.

Random numbers are keyed, not streamed: the same seed, room and position always give the same number, whatever was drawn
before. So `match` at temperature 1 emits exactly the tokens of plain decoding, and a run can be replayed from any
round.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

from specdec_lib.lazy import torch
from specdec_lib.scores import Categorical


@dataclass(frozen=True)
class Dice:
    """Keyed random numbers: `at(position)` for output tokens, `fork(...)` for a room's own, `aside()` for the rest."""

    seed: int = 0
    key: tuple = ()

    @cached_property
    def _generator(self) -> random.Random:         # seeded at the first draw, which greedy decoding never makes
        return random.Random(f"{self.seed}|{self.key}")

    def fork(self, *key) -> Dice:
        """Dice for `key`, independent of these."""
        return Dice(self.seed, self.key + key)

    def at(self, position: int) -> Dice:
        """Dice of one absolute position; repeated draws there give successive numbers."""
        return self.fork("at", position)

    def aside(self) -> Dice:
        """Dice for choices that change no token, such as Thompson sampling."""
        return self.fork("aside")

    def flip(self, prob: float) -> bool:
        """True with probability `prob`; at 0 or 1 no random number is drawn."""
        return prob >= 1 or (prob > 0 and self._generator.random() < prob)

    def choose(self, dist: Categorical) -> int:
        """A token drawn from `dist`; with a support of one no random number is drawn."""
        if dist.only is not None:
            return dist.only
        sums = torch.cumsum(dist.probs, 0)
        mark = self._generator.random() * float(sums[-1])
        index = int(torch.searchsorted(sums, torch.tensor(mark, dtype=sums.dtype, device=sums.device), right=True))
        if index == len(sums):                     # the mark was rounded up to the sum: the last that is possible
            index = int(dist.probs.nonzero()[-1])
        return int(dist.ids[index])
