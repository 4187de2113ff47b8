"""A curve refitted to forwards of a machine that became another one."""

import pytest

from specdec_lib.cost.curves import CostCurve
from specdec_lib.cost.refit import nearest, refitted

CURVE = CostCurve((1, 5, 9), (256, 1024), ((10.0, 12.0, 20.0), (20.0, 24.0, 40.0)), "tiny", "cpu", "float32", 2)


def forwards(count, **seconds):
    """So many forwards of each width, whose name is w and its number."""
    return [(int(name[1:]), value) for name, value in seconds.items()] * count


def flat(curve):
    return [seconds for row in curve.seconds for seconds in row]


def test_a_machine_that_stayed_the_same_keeps_its_curve():
    same = refitted(CURVE, forwards(40, w1=10.0, w3=11.0, w5=12.0, w9=20.0))
    assert flat(same) == pytest.approx(flat(CURVE))
    assert same.provenance == CURVE.provenance
    assert refitted(CURVE, []) is CURVE


def test_many_forwards_outweigh_the_curve_and_few_change_little():
    dear = forwards(2000, w1=10.0, w5=24.0)
    assert refitted(CURVE, dear, latest=9999)(5) == pytest.approx(24.0, rel=.01)
    assert refitted(CURVE, dear[:2])(5) == pytest.approx(12.0 * (1 * 2 + 15) / 16)
    assert refitted(CURVE, dear[:30])(5) == pytest.approx(12.0 * 1.5)      # as many as the curve stands for


def test_a_slower_machine_is_slower_at_every_width_and_keeps_its_node_budget():
    slow = refitted(CURVE, forwards(50, w1=15.0))
    assert [slow(width) for width in (1, 5, 9)] == pytest.approx([15.0, 18.0, 30.0])
    assert slow.nodes() == CURVE.nodes() == 4


def test_the_node_budget_follows_what_rows_cost_now():
    cheap = refitted(CURVE, forwards(400, w1=10.0, w5=10.5, w9=11.0))
    dear = refitted(CURVE, forwards(400, w1=10.0, w5=20.0, w9=36.0))
    assert dear.nodes() < CURVE.nodes() < cheap.nodes()
    assert dear.price() > CURVE.price() > cheap.price()


def test_widths_without_forwards_take_the_ratios_of_those_beside_them():
    curve = CostCurve((1, 2, 3, 4), (8,), ((1.0, 1.0, 1.0, 1.0),))
    found = refitted(curve, [(1, 1.0)] * 99 + [(3, 3.0)] * 99, weight=0)
    assert found.seconds[0] == pytest.approx((1, 2, 3, 3))


def test_all_contexts_change_alike():
    found = refitted(CURVE, forwards(2000, w1=10.0, w5=24.0), latest=9999)
    assert found(5, 1024) == pytest.approx(2 * found(5, 256))


def test_only_the_latest_forwards_count():
    old, new = forwards(300, w1=10.0, w9=60.0), forwards(300, w1=10.0, w9=20.0)
    assert flat(refitted(CURVE, old + new, latest=600)) == pytest.approx(flat(CURVE))
    assert refitted(CURVE, old + new, latest=1200)(9) > 19.9
    assert refitted(CURVE, new + old, latest=600)(9) > 55


def test_a_few_disturbed_forwards_do_not_count():
    """The lower quartile, as in a measurement: other load only adds time."""
    disturbed = forwards(30, w1=10.0, w5=12.0) + forwards(10, w1=90.0, w5=90.0)
    assert flat(refitted(CURVE, disturbed)) == pytest.approx(flat(CURVE))


def test_without_a_plain_forward_the_machines_speed_is_unknown():
    assert refitted(CURVE, forwards(50, w9=90.0)) is CURVE


def test_a_forward_wider_than_the_curve_belongs_to_its_last_width():
    assert refitted(CURVE, forwards(2000, w1=10.0, w13=56.0), latest=9999)(9) == pytest.approx(40.0, rel=.01)


@pytest.mark.parametrize(("width", "place"), [(1, 0), (3, 0), (4, 1), (5, 1), (7, 1), (8, 2), (9, 2), (40, 2)])
def test_the_nearest_width_is_the_narrower_one_of_two(width, place):
    assert nearest((1, 5, 9), width) == place


def test_a_curve_that_falls_at_its_end_is_not_extrapolated_below_it():
    falling = CostCurve((1, 2, 16, 32), (256,), ((.010, .0101, .0140, .0115),))
    assert [falling(width) for width in (32, 64, 500)] == [.0115] * 3
    same = refitted(falling, [(1, .010)] * 20 + [(96, .0115)] * 200)
    assert flat(same) == pytest.approx(flat(falling))
