"""Which settings of a sweep lie so close to its best one that the prompts do not tell them apart.

The best setting was chosen by the prompts that it is compared on, so one interval for each rival is too narrow: of 42
equally good settings on 12 prompts such intervals tell 28 % apart from the best. All rivals are judged at once instead
(multiple comparisons with the best, Hsu 1996): the prompts are drawn once for all settings, and the bound is a quantile
of the largest standardised error of any rival.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from specdec_lib.intervals import FEWEST

DRAWS = 4000
LEVEL = 0.95
EQUAL = 1e-9                                       # a spread of log ratios below this is rounding


def close_to(best: np.ndarray, rivals: Mapping[str, np.ndarray], ratio: Callable[[np.ndarray], np.ndarray],
             more_is_better: bool = True, seed: int = 0) -> set[str]:
    """The rivals that the prompts do not tell from the best; all of them below five prompts.

    Totals are [prompts, columns], the prompts in one order. A rival whose measure is undefined, or 0, is not judged
    here and left out.
    """
    count = len(best)
    if count < FEWEST:
        return set(rivals)
    dice = np.random.default_rng(seed)
    times = dice.multinomial(count, [1 / count] * count, DRAWS).astype(float)        # how often each prompt is drawn
    sign = 1.0 if more_is_better else -1.0
    ahead, spread = {}, {}
    largest = np.full(DRAWS, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        top, above = (np.log(ratio(totals)) for totals in (best.sum(0), times @ best))
        for label, rival in rivals.items():
            lead, drawn = sign * (top - np.log(ratio(rival.sum(0)))), sign * (above - np.log(ratio(times @ rival)))
            if not np.isfinite(lead):
                continue
            ahead[label], spread[label] = float(lead), float(np.nanstd(np.where(np.isfinite(drawn), drawn, np.nan)))
            if spread[label] > EQUAL:
                largest = np.fmax(largest, np.where(np.isfinite(drawn), (drawn - lead) / spread[label], -np.inf))
    largest *= np.sqrt(count / dice.chisquare(count - 1, DRAWS))      # Student's t, as in `intervals.tails`
    known = largest[np.isfinite(largest)]
    bound = float(np.quantile(known, LEVEL)) if len(known) else 0.0
    return {label for label, lead in ahead.items()
            if lead <= (bound * spread[label] if spread[label] > EQUAL else EQUAL)}
