"""How many tokens to draft: what a chain of each length is worth, given acceptance and costs. Plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple


def expected_rates(probs: Iterable[float], seconds: Callable[[int], float]) -> Iterator[float]:
    """Tokens expected per second of a round that drafts a chain of 0, 1, 2, ... tokens, as far as there are chances.

    `chances` are those of acceptance at depth 1, 2, ..., each once the token before was accepted; `seconds(n)` is all
    that a round with n drafted tokens costs, in any unit. The verdict's own token is counted.
    """
    tokens = reach = 1.0
    yield tokens / seconds(0)
    for n, prob in enumerate(probs, 1):
        reach *= prob
        tokens += reach
        yield tokens / seconds(n)


def best_length(probs: Iterable[float], seconds: Callable[[int], float], shortest: int = 0) -> int:
    """How many tokens of a chain bring the most tokens per second, of all lengths from `shortest`; a tie is short."""
    worth = list(expected_rates(probs, seconds))[shortest:]
    return shortest + worth.index(max(worth))


class RoundOffer(NamedTuple):
    """What one drafter would do in one round from one place of a known text."""

    drafted: int                                   # nodes
    tokens: int                                    # accepted, and the verdict's own
    ms: float                                      # drafting and one forward, predicted; any unit will do

    @property
    def rate(self) -> float:
        """Tokens per millisecond."""
        return self.tokens / self.ms


def quickest_lengths(offers: Sequence[Sequence[RoundOffer]]) -> tuple[int, ...]:
    """For every place of a known text the length to draft there, so that the rest is written soonest; a tie is short.

    `offers[n][place]` is what a draft of `n` tokens would do at a place. Worked out backwards from the end of the text;
    the last token is left to the verdict, so no length reaches beyond it.
    """
    places = len(offers[0])
    left = [0.0] * (places + 1)                    # ms from here to the end of the text
    best = [0] * places
    for place in reversed(range(places)):
        spent = [some[place].ms + left[place + some[place].tokens] for some in offers[:places - place]]
        left[place] = min(spent)
        best[place] = spent.index(left[place])
    return tuple(best)
