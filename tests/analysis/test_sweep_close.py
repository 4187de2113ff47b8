"""Rivals of the best setting: those that are truly as good stay, those that are worse on every prompt go."""

import numpy as np
import pytest

from specdec_lib.analysis.sweep_close import close_to
from specdec_lib.analysis.sweep_measures import MEASURES, NLL, TOKENS


def equally_good(settings, prompts, seed, noise=0.08):
    """Totals of settings that differ by noise alone: 48 tokens of a prompt in about as many forwards."""
    dice = np.random.default_rng(seed)
    base = dice.uniform(20, 30, prompts)
    return {f"s{place}": np.stack([np.full(prompts, 48.0), base * dice.normal(1, noise, prompts)], 1)
            for place in range(settings)}


@pytest.mark.parametrize("prompts", [12, 40])
def test_settings_that_are_truly_as_good_as_the_chosen_best_are_seldom_told_from_it(prompts):
    ratio, lost = MEASURES[TOKENS].ratio, []
    for seed in range(30):
        rivals = equally_good(42, prompts, seed)
        best = rivals.pop(max(rivals, key=lambda label: ratio(rivals[label].sum(0))))     # noqa: B023
        lost.append(1 - len(close_to(best, rivals, ratio)) / len(rivals))
    assert np.mean(lost) < 0.1                     # one interval for each loses 28 % on twelve prompts


def test_what_is_worse_by_more_than_the_noise_is_told_apart_among_many_equals():
    rivals = equally_good(42, 12, 0)
    best = rivals.pop("s0") * [1.5, 1]
    assert close_to(best, rivals, MEASURES[TOKENS].ratio) == set()


def test_a_steady_lead_counts_and_equal_settings_stay_in_either_direction():
    best = np.array([[30.0, 10 + place % 3] for place in range(8)])
    rivals = {"same": best, "less": best * [0.9, 1], "none": best * [0, 1]}
    assert close_to(best, rivals, MEASURES[TOKENS].ratio) == {"same"}
    assert close_to(best, {"same": best, "more": best * [1.1, 1]}, MEASURES[NLL].ratio, False) == {"same"}
    assert close_to(best[:4], rivals, MEASURES[TOKENS].ratio) == set(rivals)            # too few prompts
