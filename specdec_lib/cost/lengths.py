"""How many tokens to draft: tokens per second of a chain of each length, given acceptance and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple


def expected_rates(probs: Iterable[float], seconds: Callable[[int], float]) -> Iterator[float]:
    """Tokens expected per second of a round that drafts a chain of 0, 1, 2, ... tokens, up to as many as `probs`.

    `probs` are the probabilities of acceptance at depth 1, 2, ..., given that the token before was accepted;
    `seconds(n)` is the cost of a round with n drafted tokens, in any unit. The verdict's own token is counted.
    """
    tokens = reach = 1.0
    yield tokens / seconds(0)
    for n, prob in enumerate(probs, 1):
        reach *= prob
        tokens += reach
        yield tokens / seconds(n)


def best_length(probs: Iterable[float], seconds: Callable[[int], float], shortest: int = 0) -> int:
    """The draft length with the most tokens per second, of all from `shortest` on; the shorter one on a tie."""
    worth = list(expected_rates(probs, seconds))[shortest:]
    return shortest + worth.index(max(worth))


class RoundOffer(NamedTuple):
    """What one drafter would do in one round at one position of a known text."""

    drafted: int                                   # nodes
    tokens: int                                    # accepted, and the verdict's own
    ms: float                                      # drafting and one forward, predicted; any unit will do

    @property
    def rate(self) -> float:
        """Tokens per millisecond."""
        return self.tokens / self.ms


def quickest_lengths(offers: Sequence[Sequence[RoundOffer]]) -> tuple[int, ...]:
    """For every position of a known text the draft length that ends the text soonest; the shorter one on a tie.

    `offers[n][place]` is what a draft of `n` tokens would do at a position. Computed backwards from the end of the
    text; the last token is left to the verdict, so no length reaches beyond it.
    """
    places = len(offers[0])
    left = [0.0] * (places + 1)                    # ms from here to the end of the text
    best = [0] * places
    for place in reversed(range(places)):
        spent = [some[place].ms + left[place + some[place].tokens] for some in offers[:places - place]]
        left[place] = min(spent)
        best[place] = spent.index(left[place])
    return tuple(best)
