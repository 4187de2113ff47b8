"""What a head would draft along a known answer, by its own scores alone and with counts of the text.

The true tokens are drafted, so the row at depth k is that of a path whose first k - 1 tokens were right. The score of a
token is that of `what/eagle2.py` where decoding is greedy: GREEDY times the logit, plus the weighted probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from specdec_lib.heads.text_counts import TextCounts
from specdec_lib.scores import Scores
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Draft
from specdec_lib.what.eagle2 import GREEDY


class Guess(NamedTuple):
    """A row of a head: its best tokens and their logits, what the counts give to each, and the token that came."""

    depth: int                                     # from 1
    place: int                                     # of the token that came, in the whole text
    came: int
    ids: Sequence[int]
    logits: Sequence[float]
    chances: Sequence[float]

    def best(self, weight: float) -> int:
        """The token with the highest score where counts have this weight."""
        return max(zip(self.ids, self.logits, self.chances, strict=True),
                   key=lambda one: GREEDY * one[1] + weight * one[2])[0]

    def right(self, weight: float) -> bool:
        """Whether that is the token that came."""
        return self.best(weight) == self.came


def answer_guesses(head: Callable[[tuple[int, ...], Draft], Scores], tokens: tuple[int, ...], start: int, deep: int,
                   every: int = 1) -> list[Guess]:
    """The guesses `deep` tokens ahead at one in `every` positions of an answer, which begins at `start`."""
    counts, found = TextCounts(1.0), []
    for at in range(start + 1, len(tokens) - deep + 1, every):
        counts.read(tokens[:at])
        scores = head(tokens[:at], deterministic_chain(tokens[at:at + deep - 1]))
        ids, logits = scores.row_stats(tuple(range(deep))).tops
        found += [Guess(k + 1, at + k, tokens[at + k], ids[k], logits[k], counts.chances(tokens[at:at + k], ids[k]))
                  for k in range(deep)]
    return found


def share_right(guesses: Sequence[Guess], weight: float, depth: int | None = None) -> float:
    """The share of right guesses of this depth, or of all; 0 where there are none."""
    own = [one.right(weight) for one in guesses if depth in (None, one.depth)]
    return sum(own) / max(1, len(own))
