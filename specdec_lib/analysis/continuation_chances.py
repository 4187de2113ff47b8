"""How right the chances of continuations are: each token that was drafted beside the chance it was given.

At every position of a recorded answer the longest repeated suffix is continued by its likeliest chain, and followed
while it agrees with the answer. So a token counts where all tokens before it were right, as in a draft.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2
from statistics import fmean
from typing import NamedTuple

from specdec_lib.index.continuations import GrowthLimits, grow
from specdec_lib.index.suffix_automaton import SuffixAutomaton
from specdec_lib.types import Budget

SUREST = 0.99                                      # chances are taken as 1 - SUREST at least and SUREST at most


class DraftedToken(NamedTuple):
    """One token of a chain: its depth from 1 on, the chance it was given, and whether the answer has it."""

    depth: int
    chance: float
    right: bool


def drafted_tokens(answers: Iterable[tuple[Sequence[int], int]], rule: str, deepest: int = 8) -> list[DraftedToken]:
    """The tokens of all chains; an answer is its tokens with the prompt, and the length of the prompt."""
    limits, found = GrowthLimits(Budget(deepest), rule=rule), []
    for tokens, prompt in answers:
        text = SuffixAutomaton()
        for at in range(prompt, len(tokens)):
            text.read(tuple(tokens[:at]))
            for suffix in [*text.repeated()][:1]:
                chain = grow(text, suffix, limits)
                found += followed(chain.tokens, chain.confidence, tokens[at:])
    return found


def followed(chain: Sequence[int], chances: Sequence[float], answer: Sequence[int]) -> list[DraftedToken]:
    """The tokens of a chain up to the first that the answer does not have, as far as the answer goes."""
    out: list[DraftedToken] = []
    for token, chance, said in zip(chain, chances, answer, strict=False):
        out.append(DraftedToken(len(out) + 1, chance, token == said))
        if token != said:
            break
    return out


def surprise(drafted: Iterable[DraftedToken]) -> float:
    """Mean surprise of what came, in bits: minus the logarithm of the chance that it was given."""
    sure = ((min(max(one.chance, 1 - SUREST), SUREST), one.right) for one in drafted)
    return fmean(-log2(chance if right else 1 - chance) for chance, right in sure)
