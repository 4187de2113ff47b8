"""Whether the best setting of a sweep stays the best: chosen on half of the prompts, judged on the other half."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from specdec_lib.analysis.sweep import SweepRun, ranked
from specdec_lib.analysis.sweep_measures import MEASURES
from specdec_lib.intervals import FEWEST


class HeldOutChoice(NamedTuple):
    """What becomes of the best setting on half of the prompts, on the other half."""

    draws: int
    best_again: float                              # share of the draws in which it is best there as well
    by_chance: float                               # the same for a setting drawn at random
    loss: float | None                             # mean share of the best there that it lacks; None where that is 0
    chosen: dict[str, int]                         # how often each setting was chosen


def held_out_choices(run: SweepRun, measure: str, draws: int = 1000, seed: int = 0) -> HeldOutChoice | None:
    """Random halves of the prompts: a setting is chosen on one and compared with the best on the other.

    None with fewer than ten prompts, two settings, or where the measure is undefined on a half of every draw.
    """
    labels = ranked(run, measure)
    if len(run.questions) < 2 * FEWEST or len(labels) < 2:
        return None
    totals = np.stack([run.numbers([label], measure) for label in labels])         # [settings, prompts, columns]
    dice = np.random.default_rng(seed)
    picked = np.stack([dice.permutation(len(run.questions)) < len(run.questions) // 2 for _ in range(draws)])
    sign = 1 if MEASURES[measure].more_is_better else -1
    with np.errstate(divide="ignore", invalid="ignore"):
        tuned, held = (sign * MEASURES[measure].ratio(np.einsum("dp,spc->dsc", mask.astype(float), totals))
                       for mask in (picked, ~picked))
    whole = np.isfinite(tuned).all(1) & np.isfinite(held).all(1)
    tuned, held = tuned[whole], held[whole]
    if not len(tuned):
        return None
    choice, most = tuned.argmax(1), held.max(1)
    got = held[np.arange(len(held)), choice]
    best = np.isclose(held, most[:, None], rtol=1e-12, atol=0)
    counts = Counter(labels[place] for place in choice)
    loss = float((np.abs(most - got) / np.abs(most)).mean()) if most.all() else None
    return HeldOutChoice(len(held), float(best[np.arange(len(held)), choice].mean()), float(best.mean()), loss,
                         dict(counts.most_common()))
