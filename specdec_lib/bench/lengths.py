"""How long each draft should have been: walks along a recorded text, and the lengths that write it in the least time.

Source: ours; the bar for every rule that chooses a length. It knows the text to come and what the drafter says at each
of its places, so no rule that draws on the same drafts is faster, under the same prices. Seconds are predicted.
In both functions `offers[n][place]` is what a draft of `n` tokens would do at a place of the text.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_lib.bench.trigger import Offer


def walk(offers: Sequence[Sequence[Offer]], lengths: Sequence[int]) -> list[Offer]:
    """The rounds that write the text with drafts of `lengths[place]` tokens, each leaving one token to the verdict."""
    places, place, out = len(offers[0]), 0, []
    while place < places:
        out.append(offers[min(lengths[place], places - place - 1, len(offers) - 1)][place])
        place += out[-1].tokens
    return out


def quickest(offers: Sequence[Sequence[Offer]]) -> tuple[int, ...]:
    """For every place of the text the length to draft there, so that the rest is written soonest; a tie is short."""
    places = len(offers[0])
    left = [0.0] * (places + 1)                    # ms from here to the end of the text
    best = [0] * places
    for place in reversed(range(places)):
        spent = [some[place].ms + left[place + some[place].tokens] for some in offers[:places - place]]
        left[place] = min(spent)
        best[place] = spent.index(left[place])
    return tuple(best)
