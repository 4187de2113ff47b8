"""Published figures of DiffuSpec: what they imply of one another."""

import pytest

from specdec_lib.analysis import diffuspec_published
from specdec_lib.analysis.diffuspec_published import ABLATION, BOTH, FIXED, NEITHER, PER_TASK, TASKS


def test_two_rows_of_the_paper_imply_one_plain_step():
    assert pytest.approx((1.657, 1.654), abs=6e-4) == diffuspec_published.STEPS
    assert pytest.approx(1.655, abs=1e-3) == diffuspec_published.STEP


def test_the_papers_own_tokens_are_priced_at_its_own_speed():
    assert diffuspec_published.published_speedup(*ABLATION[BOTH][:1]) == pytest.approx(3.08, rel=2e-3)
    assert diffuspec_published.published_speedup(diffuspec_published.published_break_even()) == pytest.approx(1)
    assert diffuspec_published.published_break_even() > 2


def test_a_second_forward_costs_a_second_draft_and_a_search_costs_little():
    one, two = diffuspec_published.published_speedup(3.0), diffuspec_published.published_speedup(3.0, forwards=2)
    assert 3.0 * diffuspec_published.STEP / two - 3.0 * diffuspec_published.STEP / one == pytest.approx(1.6)
    unsearched = diffuspec_published.published_speedup(3.0, searched=False)
    assert one < unsearched < 1.01 * one < diffuspec_published.published_speedup_at_best(3.0)


def test_the_tables_of_the_paper_disagree_where_the_search_is_off():
    means = {cell: sum(one.speed for one in said) / len(TASKS) for cell, said in PER_TASK.items()}
    gap = {cell: abs(mean - ABLATION[cell].speed) for cell, mean in means.items()}
    assert gap[BOTH] < .02
    assert gap[NEITHER] > .2
    assert all(len(said) == len(TASKS) for said in PER_TASK.values())
    assert max(said.tokens for said in FIXED.values()) < ABLATION[diffuspec_published.SEARCH].tokens


def test_at_best_a_verification_costs_a_plain_step():
    step = diffuspec_published.STEP
    assert diffuspec_published.published_speedup_at_best(2.0) == pytest.approx(2 * step / (step + 1.6 + .03))
    assert diffuspec_published.published_speedup_at_best(2.0, 0, searched=False) == pytest.approx(2.0)
