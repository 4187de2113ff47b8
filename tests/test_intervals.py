"""Bootstrap intervals: the quantiles of few prompts, and how often an interval holds what it is an interval of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specdec_lib import intervals
from specdec_lib.bench.results import read_turns
from specdec_lib.bench.summary import paired
from specdec_lib.intervals import bootstrap, students_t, tails

RUN = Path(__file__).parents[1] / "data" / "results" / "relaxed"
PLAIN = (0.025, 0.975)


def ratio(totals: np.ndarray) -> np.ndarray:
    return totals[:, 0] / totals[:, 1]


def times_as_fast(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return one[:, 1] * two[:, 0] / (one[:, 0] * two[:, 1])


@pytest.mark.parametrize(("freedom", "t"), [(4, 2.77645), (7, 2.36462), (11, 2.20099), (23, 2.06866), (59, 2.00100)])
def test_students_t_is_that_of_the_tables(freedom: int, t: float):
    assert students_t(freedom) == pytest.approx(t, abs=1 / freedom ** 5 + 5e-6)        # the next term; five digits


def test_the_tails_are_alike_and_over_many_prompts_the_plain_quantiles():
    assert sum(tails(5)) == pytest.approx(1)
    assert tails(5)[0] < tails(8)[0] < tails(24)[0] < 0.025
    assert tails(100_000) == pytest.approx(PLAIN, abs=1e-5)


def share_held(count: int, samples: int = 600) -> float:
    """How many intervals over `count` prompts, drawn from those of a run, hold the speed-up over all of its prompts."""
    decodes = read_turns(RUN)
    plain, other = (np.asarray(side, float) for side in paired(
        *([one for one in decodes if one.method == name] for name in ("ar", "respec"))))
    known = times_as_fast(plain.sum(0, keepdims=True), other.sum(0, keepdims=True))[0]
    picks = np.random.default_rng(1).integers(len(plain), size=(samples, count))
    found = [bootstrap([plain[pick].tolist(), other[pick].tolist()], times_as_fast, draws=1000) for pick in picks]
    return float(np.mean([low <= known <= high for low, high in found]))


@pytest.mark.parametrize("count", [5, 8, 24])
def test_an_interval_over_few_prompts_holds_the_speed_over_all_nineteen_times_in_twenty(count: int):
    assert 0.92 <= share_held(count) <= 0.98


def test_plain_quantiles_hold_it_less_often(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(intervals, "tails", lambda count: PLAIN)
    assert share_held(8) < 0.90


def test_a_stall_of_one_prompt_in_twenty_leaves_the_intervals_of_24_prompts_too_narrow():
    dice = np.random.default_rng(5)
    stalled = np.where(dice.random((300, 24)) < 0.05, 5.0, 1.0) * np.exp(dice.normal(0, 0.05, (300, 24)))
    plain, known = [(1.0, 1.0)] * 24, 1 / (1.2 * np.exp(0.05 ** 2 / 2))
    found = [bootstrap([plain, [(1.0, x) for x in own]], times_as_fast, draws=1000) for own in stalled]
    assert 0.6 < np.mean([low <= known <= high for low, high in found]) < 0.8      # notebook 90 says 70 %


def test_a_draw_takes_a_prompt_on_all_sides():
    one = [(x, 1.0) for x in (1.0, 5.0, 2.0, 9.0, 4.0)]
    other = [(x + 1.0, 1.0) for x, _ in one]
    assert bootstrap([one, other], lambda a, b: ratio(b) - ratio(a)) == pytest.approx([1.0, 1.0])


def test_draws_take_as_many_prompts_as_there_are_and_total_what_they_took():
    side, ends = [[float(2 ** place), 1.0] for place in range(7)], []
    bootstrap([side], lambda totals: ends.extend(totals.tolist()) or totals[:, 0], draws=50, seed=3)
    pick = np.random.default_rng(3).integers(7, size=(50, 7))
    assert ends == [[float(sum(2 ** place for place in one)), 7.0] for one in pick.tolist()]


def test_fewer_than_five_prompts_have_no_interval():
    assert bootstrap([[(1.0, 1.0)] * 4], ratio) is None
    assert bootstrap([[(1.0, 1.0)] * 5], ratio) == [1.0, 1.0]


def test_an_end_that_is_infinite_is_no_interval_and_a_draw_that_is_undefined_counts_for_nothing():
    plain, now_and_then_no_time = [(1.0, 1.0)] * 6, [(1.0, 0.0)] * 4 + [(1.0, 1.0)] * 2
    assert bootstrap([plain, now_and_then_no_time], times_as_fast) is None
    assert bootstrap([[(0.0, 0.0)] * 5 + [(1.0, 2.0)]], ratio) == [0.5, 0.5]
    assert bootstrap([[(0.0, 0.0)] * 8], ratio) is None
