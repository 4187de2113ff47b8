"""Dice: the only source of randomness, passed last.

Coins are keyed, not streamed: the same seed, room, and position always show the same face, whatever was asked
before. So `match` at temperature 1 emits plain decoding's very tokens, and a run can be replayed from any round.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

import torch

from specdec_lib.scores import Distribution


@dataclass(frozen=True)
class Dice:
    """Keyed coins. `at(position)` for tokens of the output, `fork(...)` for a room's own, `aside()` for the rest."""

    seed: int = 0
    key: tuple = ()

    @cached_property
    def _coins(self) -> random.Random:             # seeded at the first throw: greedy decoding never gets here
        return random.Random(f"{self.seed}|{self.key}")

    def fork(self, *key) -> Dice:
        """Dice of their own for `key`, independent of these."""
        return Dice(self.seed, self.key + key)

    def at(self, position: int) -> Dice:
        """The coins of one absolute position; several throws there follow one another."""
        return self.fork("at", position)

    def aside(self) -> Dice:
        """Coins for choices that touch no token, such as Thompson sampling."""
        return self.fork("aside")

    def flip(self, prob: float) -> bool:
        """True with this chance; a sure outcome uses up no coin."""
        return prob >= 1 or (prob > 0 and self._coins.random() < prob)

    def choose(self, dist: Distribution) -> int:
        """A token of the law; certainty uses up no coin."""
        if dist.only is not None:
            return dist.only
        sums = torch.cumsum(dist.probs, 0)
        mark = self._coins.random() * float(sums[-1])
        place = int(torch.searchsorted(sums, torch.tensor(mark, dtype=sums.dtype, device=sums.device), right=True))
        return int(dist.ids[min(place, len(dist.ids) - 1)])
