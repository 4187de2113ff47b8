"""Densities of real tokens beside samples of them."""

import pytest

from specdec_lib import figures


def test_a_histogram_counts_every_sample_and_integrates_to_one():
    bars, line = figures.densities([0, 1], {"p": [.5, .5]}, "A title", {"drawn": [.01, .09, .11, -.01]}).data
    assert list(bars.x) == [pytest.approx(-.05), pytest.approx(.05), pytest.approx(.15)]
    assert list(bars.y) == [pytest.approx(2.5), pytest.approx(5.0), pytest.approx(2.5)]
    assert sum(bars.y) * bars.width == pytest.approx(1)
    assert line.name == "p"


def test_a_page_grows_with_the_bins_of_a_histogram_and_not_with_its_samples():
    few, many = (figures.densities([0, 1], {}, "A title", {"drawn": [n % 10 / 10 for n in range(count)]})
                 for count in (100, 10_000))
    assert len(few.to_json()) == len(many.to_json())
