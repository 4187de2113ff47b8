"""Which nodes are worth their rows: against every number of nodes, and where growing a tree may stop."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib.cards import Kit
from specdec_lib.cost.curves import CostCurve
from specdec_lib.cost.row_costs import FREE, RowCosts, node_costs, row_costs
from specdec_lib.types import Refusal

CHANCES = st.lists(st.floats(0.01, 1), max_size=12).map(lambda some: sorted(some, reverse=True))
STEPS = st.lists(st.sampled_from([0.0, 0.02, 0.1, 0.45, 0.7]), max_size=9)
CURVE = CostCurve((1, 2, 4, 5, 9), (256,), ((1.0, 1.1, 1.3, 1.2, 3.2),))


def rising(steps):
    out = [0.0]
    for step in steps:
        out.append(out[-1] + step)
    return RowCosts(tuple(out))


def gain(costs, chances, before, n):
    return sum(chances[:n]) - sum(costs(m + 1) - costs(m) for m in range(before, before + n))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(STEPS.map(rising), CHANCES, st.integers(0, 4))
def test_no_other_number_of_nodes_gains_more(costs, chances, before):
    gains = [gain(costs, chances, before, n) for n in range(len(chances) + 1)]
    assert gains[costs.worth(chances, before)] == pytest.approx(max(gains))


@settings(max_examples=2000, deadline=None, derandomize=True)
@given(STEPS.map(rising), st.integers(0, 12), st.floats(0.01, 1))
def test_growing_may_stop_exactly_where_nothing_that_follows_can_gain(costs, nodes, chance):
    reach = max(1, len(costs.tokens) - nodes)      # one node beyond the costs
    best = max(gain(costs, [chance] * reach, nodes, n) for n in range(1, reach + 1))
    if abs(best) > 1e-9:
        assert costs.too_dear(nodes, chance) == (best < 0)


def test_with_a_step_in_the_costs_a_tree_ends_before_it_or_goes_well_beyond():
    step = rising([.1, .1, .6, .1, .1, .1])
    assert step.worth([.9, .5, .4]) == 2
    assert step.worth([.9, .5, .45, .4, .35, .3]) == 6
    assert not step.too_dear(2, .4)
    assert step.too_dear(2, .2)


def test_equal_steps_are_a_least_probability():
    costs = RowCosts((0.0, .25))
    assert [costs(n) for n in (0, 1, 2, 6)] == [0, .25, .5, 1.5]
    assert costs.worth([.9, .5, .3, .2, .1]) == 3
    assert [costs.too_dear(5, chance) for chance in (.2, .3)] == [True, False]


def test_rows_that_cost_nothing_leave_every_node():
    assert FREE.worth([.5, .1, .001]) == 3
    assert not FREE.too_dear(7, .001)
    assert FREE.worth([]) == 0


def test_costs_are_read_from_the_curve_in_tokens_and_never_fall():
    costs = row_costs(CURVE, 2.0, most=8)
    assert costs.tokens == pytest.approx((0, .2, .4, .6, .6, 1.4, 2.4, 3.4, 4.4))
    assert costs(10) == pytest.approx(6.4)


def test_a_price_the_curve_or_the_kits_price_says_what_a_node_costs():
    assert node_costs(Kit(None, cost=CURVE), 1.5, 0.2) == (0.2, FREE)
    assert node_costs(Kit(None, cost=CURVE), 1.5) == (0.0, row_costs(CURVE, 1.5))
    assert node_costs(Kit(None, price=.04), 1.5) == (pytest.approx(.06), FREE)
    assert node_costs(Kit(None, price=5.0), 1.5) == (1.0, FREE)


@pytest.mark.parametrize("price", [-0.1, 2, float("nan")])
def test_a_price_that_is_no_probability_is_refused(price):
    with pytest.raises(Refusal, match="between 0 and 1, got"):
        node_costs(SimpleNamespace(cost=None, price=.1), 1.5, price)
