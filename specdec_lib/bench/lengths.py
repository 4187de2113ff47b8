"""Walks along a recorded text: the rounds that write it with given lengths of draft.

Source: ours. The lengths that do so soonest, the bar for every rule that chooses one, are `drafting.quickest`: they
know the text to come and what the drafter says at each of its places, so no rule that draws on the same drafts is
faster, under the same prices. Seconds are predicted.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_lib.drafting import Offer


def walk(offers: Sequence[Sequence[Offer]], lengths: Sequence[int]) -> list[Offer]:
    """The rounds that write the text with drafts of `lengths[place]` tokens, each leaving one token to the verdict.

    `offers[n][place]` is what a draft of `n` tokens would do at a place of the text.
    """
    places, place, out = len(offers[0]), 0, []
    while place < places:
        out.append(offers[min(lengths[place], places - place - 1, len(offers) - 1)][place])
        place += out[-1].tokens
    return out
