"""How good a filled text is: its likelihood under the target, and how much it repeats itself.

Likelihood alone rewards loops ("the the the" is likely after "the the"), so distinct n-grams stand beside it. Both are
of the text before its first end token.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from specdec_lib.types import LM, ROOT, Draft


def before_end(tokens: Sequence[int], end: Collection[int]) -> tuple[int, ...]:
    """The tokens before the first end token."""
    stop = next((at for at, token in enumerate(tokens) if token in end), len(tokens))
    return tuple(tokens[:stop])


def target_nll(target: LM, prompt: Sequence[int], answer: Sequence[int]) -> float | None:
    """Mean nats per token of the answer under the target, at temperature 1; None for an empty answer."""
    if not answer:
        return None
    chain = Draft(tuple(answer[:-1]), tuple(range(ROOT, len(answer) - 2)))
    logp = torch.log_softmax(target(tuple(prompt), chain).logits.double(), -1)
    return float(-logp[torch.arange(len(answer)), torch.tensor(list(answer))].mean())


def distinct_ngrams(tokens: Sequence[int], n: int) -> float | None:
    """Distinct n-grams as a share of all of them; None where there is none. 1 = nothing is said twice."""
    grams = [tuple(tokens[at:at + n]) for at in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None
