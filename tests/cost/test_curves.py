"""The cost curve and its algebra on curves of three points."""

import json

import pytest

from specdec_lib.cost import curves
from specdec_lib.cost.curves import CostCurve
from specdec_lib.models.table import Table
from specdec_lib.scores import Scores
from specdec_lib.types import Draft, Refusal

CURVE = CostCurve((1, 5, 9), (256,), ((10.0, 12.0, 20.0),))


def test_the_curve_is_straight_between_measurements_and_drawn_on_after_the_last():
    assert [CURVE(w) for w in (1, 3, 5, 7, 9, 11)] == [10, 11, 12, 16, 20, 24]


def test_contexts_are_interpolated_and_not_drawn_on():
    curve = CostCurve((1, 2), (100, 200), ((1.0, 2.0), (3.0, 6.0)))
    assert [curve(2, c) for c in (None, 0, 100, 150, 200, 900)] == [2, 2, 2, 4, 6, 6]


def test_the_node_budget_is_the_widest_draft_within_the_tolerance():
    assert CURVE.nodes(1.25) == 4                  # T(5) = 12 <= 12.5 < T(6) = 14
    assert CURVE.nodes(1.4) == 5
    assert CURVE.nodes(9) == 8                     # never wider than what was measured
    assert CURVE.nodes(1.0) == 1                   # a draft exists even where it does not pay
    assert curves.node_budget(CURVE) == 4
    assert curves.node_budget(None) == 8


def test_the_price_of_a_node_is_its_share_of_a_plain_forward_over_four_times_the_nodes_that_cost_little():
    curve = curves.CostCurve((1, 3, 9, 17), (256,), ((2.0, 2.4, 4.4, 9.0),))
    assert curve.nodes() == 2
    assert curve.price() == pytest.approx((4.4 / 2.0 - 1) / 8) == curves.step_price(curve)
    assert curves.CostCurve((1, 9), (256,), ((2.0, 1.5),)).price() == 0
    assert curves.step_price(None) == 0.03


def test_the_expected_speedup_of_a_method_is_its_tokens_over_the_price_of_its_round():
    assert CURVE.expected_speedup(2.0, 1) == 2
    assert CURVE.expected_speedup(2.0, 5, draft=8) == 2.0 * 10 / 20


def test_expected_tokens_is_the_sum_of_the_powers_of_alpha():
    assert curves.expected_tokens(0.5, 3) == 1 + 0.5 + 0.25 + 0.125
    assert curves.expected_tokens(1, 4) == 5
    assert curves.expected_tokens(0, 4) == 1
    assert curves.expected_tokens(0.9,
                                                                                                              0) == 1
    with pytest.raises(ValueError, match="probability"):
        curves.expected_tokens(1.1, 2)


def test_a_useless_or_expensive_draft_is_best_left_alone():
    assert curves.best_depth(0.0, 0.1) == 0
    assert curves.best_depth(0.5, 0.9) == 0
    assert curves.best_depth(0.8, 0.1) == 6        # by enumeration of the formula
    assert curves.best_depth(0.9, 0.0, CURVE) < curves.best_depth(0.9, 0.0)


def test_a_saved_curve_comes_back_equal(tmp_path):
    path = tmp_path / "deep" / "curve.json"
    curve = CostCurve((1, 2), (8,), ((1.0, 1.5),), "tiny", "cpu", "float32", 2, {"commit": "abc"})
    curve.save(path)
    assert curves.load_curve(path) == curve


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"widths": [1], "contexts": [8], "seconds": [[0]]}',
                                  '{"widths": [2, 1], "contexts": [8], "seconds": [[1, 1]]}',
                                  '{"widths": [1, 2], "contexts": [8], "seconds": [[1]]}',
                                  '{"widths": [1, 2.5], "contexts": [8], "seconds": [[1, 1]]}',
                                  '{"widths": [1], "contexts": [0, 8], "seconds": [[1], [1]]}',
                                  '{"widths": [1], "contexts": [8], "seconds": [["x"]]}'])
def test_what_is_no_cost_curve_is_refused_in_a_sentence(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(Refusal, match="no cost curve"):
        curves.load_curve(path)


def test_a_missing_cost_curve_is_refused(tmp_path):
    with pytest.raises(Refusal, match="cannot be read"):
        curves.load_curve(tmp_path / "none.json")


class Clock:
    """A model whose forward takes 1 s and 0.1 s a token, on a clock of its own; it notes what it was asked."""

    context = None

    def __init__(self):
        self.now, self.asked = 0.0, []

    def prefill(self, tokens):
        self.prefilled = tokens

    def __call__(self, tokens, draft: Draft) -> Scores:
        self.now += 1 + 0.1 * (1 + len(draft)) + (100 if len(self.asked) < 3 else 0)     # the first ones are slow
        self.asked.append((tokens, len(draft) + 1))
        return Table({(): (0.5, 0.5)})(tokens, draft)


def test_measuring_takes_widths_in_turn_and_throws_the_warm_up_away():
    clock = Clock()
    curve = curves.measure_curve(clock, (1, 2, 4), (16,), repeats=3, clock=lambda: clock.now, target="fake")
    assert curve.seconds[0] == pytest.approx((1.1, 1.2, 1.4))
    assert curve.target == "fake"
    assert [width for _, width in clock.asked] == [4, 2, 1, 1, 2, 4] * 2
    assert len(clock.prefilled) == 16


def test_what_else_the_machine_does_in_half_of_the_forwards_leaves_the_curve_alone():
    clock = Clock()
    ticks = iter(range(10**6))

    def busy():                                    # every second forward ends 50 s late
        tick = next(ticks)
        return clock.now + 50 * (tick % 2) * (tick // 2 % 2)
    curve = curves.measure_curve(clock, (1, 2), (4,), repeats=8, clock=busy)
    assert curve.seconds[0] == pytest.approx((1.1, 1.2))


def test_no_two_forwards_of_a_measurement_continue_the_same_tokens():
    clock = Clock()
    curves.measure_curve(clock, (1, 2), (4,), repeats=2, clock=lambda: clock.now)
    asked = [tokens for tokens, _ in clock.asked]
    assert len(set(asked)) == len(asked)
    assert {len(tokens) for tokens in asked} == {5}


def test_a_curve_survives_json():
    assert curves.from_dict(json.loads(json.dumps(CURVE.as_dict()))) == CURVE
