"""Schedules ranked at a price: simulated, in the order of their closed forms where those exist."""

import pytest

from specdec_lib.analysis import parallel_ranking as ranking
from specdec_lib.schedules import closed_forms as forms


@pytest.mark.parametrize(("alpha", "ratio"), [(.6, 5), (.8, 10)])
def test_simulated_speeds_agree_with_their_closed_forms(alpha, ratio):
    found = ranking.simulated_speeds(alpha, ratio, rounds=8000)
    expected = {"pearl": forms.pearl_speed(alpha, ratio),
                "specbranch": forms.two_mode_speed(alpha, ratio, ratio, ranking.any_of(alpha, 3)),
                "duodecoding": forms.two_mode_speed(alpha, ratio // 2, ratio, ranking.any_of(alpha, 2)) if ratio == 10
                else forms.pearl_speed(alpha, ratio),              # two sequences do not divide five tokens
                "double": forms.two_mode_speed(alpha, 2 * ratio, ratio, steps=ratio),
                "ppsd": forms.pipelined_speed(alpha, 1, 4)}
    assert found == {name: pytest.approx(speed, rel=.05) for name, speed in expected.items()}
    assert ranking.closed_form_speeds(alpha, ratio) == {name: pytest.approx(speed) for name, speed in expected.items()}
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_branches_that_are_drafted_one_after_another_cost_what_they_win():
    batch, apart = (ranking.simulated_speeds(.6, 6, more=more)["specbranch"] for more in (0.0, 1.0))
    assert apart == pytest.approx(batch / 3)


def test_one_of_two_independent_heads_is_right_more_often():
    assert ranking.any_of(.5, 1) == .5
    assert ranking.any_of(.5, 2) == .75


def test_a_lead_below_a_hundredth_is_none():
    assert ranking.leaders({"double": 2.7, "specbranch": 2.69, "ppsd": 2.5}) == ["double", "specbranch"]
    assert ranking.leaders({"double": 2.7, "specbranch": 2.6}) == ["double"]
    assert ranking.leading_title({"double": 2.7, "specbranch": 2.69}, .8, 7) == (
        "At alpha = 0.8, ratio 7, double and specbranch are first (closed forms)")
    assert "double is first" in ranking.leading_title({"double": 2.7, "specbranch": 2.6}, .8, 7)
    speeds = ranking.closed_form_speeds(.8, 7)
    assert list(speeds.values()) == sorted(speeds.values(), reverse=True)


def test_the_title_of_a_map_says_from_which_acceptance_on_a_schedule_is_fastest():
    rows = [["serial", "serial", "PEARL"], ["serial"] * 3, ["PEARL"] * 3]
    said = ranking.map_title([.2, .5, .8], [2, 4, 16], rows, at=(2, 4))
    assert said == "PEARL is fastest from alpha = 0.80 on at ratio 2 and at no alpha of the map at ratio 4"
    assert "from alpha = 0.20 on at ratio 16" in ranking.map_title([.2, .5, .8], [2, 4, 16], rows, at=(16,))


@pytest.mark.parametrize(("row", "said"), [
    (["PEARL", "serial", "PEARL", "serial"], "at alpha = 0.20, at alpha = 0.60 at ratio 4"),
    (["serial", "PEARL", "PEARL", "serial"], "from alpha = 0.40 to 0.60 at ratio 4"),
    (["PEARL", "serial", "PEARL", "PEARL"], "at alpha = 0.20, from alpha = 0.60 on at ratio 4")])
def test_a_schedule_that_leads_but_not_at_the_end_of_a_map_is_not_said_to_lead_nowhere(row, said):
    assert ranking.map_title([.2, .4, .6, .8], [4], [row], at=(4,)) == f"PEARL is fastest {said}"


def test_a_title_names_every_range_in_which_a_schedule_is_ahead():
    said = {"from alpha = 0.73 on": [(.73, 1.0)], "from alpha = 0.76 to 0.996": [(.76, .996)],
            "at no alpha from 0.2 on": [],
            "up to alpha = 0.30 and from alpha = 0.90 on": [(.2, .3), (.9, 1.0)],
            "at every alpha from 0.2 on": [(.2, 1.0)]}
    assert {ranking.ahead_text(ranges, .2): ranges for ranges in said.values()} == said


def test_the_map_gives_each_point_to_the_fastest_and_a_tie_to_the_simpler_one():
    rows = ranking.fastest_schedules([.05, .5, .95], [2, 10])
    assert rows[1] == ["plain decoding", "serial speculation", "PEARL"]
    assert rows[0][2] == "PEARL"
    assert ranking.fastest_schedules([0.0], [5]) == [["plain decoding"]]
