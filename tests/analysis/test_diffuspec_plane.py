"""The plane of draft cost and tokens: a method lies above the break-even line where its identity says it is faster."""

import pytest

from specdec_lib.analysis import diffuspec_ablation, diffuspec_plane
from specdec_lib.analysis.bench_report import load_report
from specdec_lib.models.replay import SHIPPED


@pytest.fixture(scope="module")
def report():
    return load_report(SHIPPED.parent / "results" / "diffuspec")


def test_cost_and_verification_of_a_method_give_its_measured_speed(report):
    both = diffuspec_ablation.specs_by_cell(report.entries)[diffuspec_plane.BOTH]
    cost, tokens = diffuspec_plane.measured_points(report)["both"]
    assert tokens / (diffuspec_plane.verification(report) + cost) == pytest.approx(
        report.entries[both]["speedup"], rel=2e-3)


def test_the_published_points_give_the_published_speeds():
    points = diffuspec_plane.published_points()
    cost, tokens = points["DiffuSpec, published"]
    verify = diffuspec_plane.DIFFUSPEC_ROUND.verify / diffuspec_plane.STEP
    assert tokens / (verify + cost) == pytest.approx(3.08, rel=2e-3)
    cost, tokens = points["7B token by token, published"]
    verify = diffuspec_plane.SPS_ROUND.verify / diffuspec_plane.STEP
    assert tokens / (verify + cost) == pytest.approx(diffuspec_plane.SPS.speed, rel=2e-3)


def test_the_ranges_hold_every_point():
    (low, high), (least, most) = diffuspec_plane.ranges({"a": (0.2, 1.2)}, {"b": (2.0, 7.0)})
    assert (low, least) == (0.01, 0.9)
    assert high > 2.0
    assert most > 7


def test_the_published_rows_name_the_paper_and_the_independent_run():
    rows = diffuspec_plane.published_maths()
    assert rows["the paper, mathematics"] == {"tokens": 7.61, "speed": 4.05}
    assert sum("Qwen" in name for name in rows) == 2
    lengths = diffuspec_plane.published_lengths()
    assert lengths["20 tokens"] == {"tokens": 6.56, "speed": 2.98}
    assert lengths["controller, 20 to 30"] == {"tokens": 6.99, "speed": 3.08}
