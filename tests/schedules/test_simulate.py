"""Lanes do one task at a time, what they did adds up, and contention only costs time."""

import pytest

from specdec_lib.schedules import simulate as sim
from specdec_lib.schedules.simulate import DRAFT, DRAFTER, TARGET, VERDICT, VERIFY, Calibration, Task, simulate


def spans(done, kind):
    return [(one.lane, one.start, one.end) for one in done.intervals if one.kind == kind]


def test_a_task_starts_when_its_lane_is_free_and_what_it_waits_for_has_ended():
    done = simulate([Task(DRAFTER, 3, DRAFT), Task(TARGET, 2, VERIFY), Task(TARGET, 1, VERIFY, (0,)),
                     Task(TARGET, 1, VERIFY)])
    assert spans(done, VERIFY) == [(TARGET, 0, 2), (TARGET, 3, 4), (TARGET, 4, 5)]
    assert spans(done, sim.WAIT) == [(TARGET, 2, 3), (DRAFTER, 3, 5)]
    assert done.seconds == 5


def test_contention_lasts_only_while_both_work():
    done = simulate([Task(DRAFTER, 2, DRAFT), Task(TARGET, 5, VERIFY)], kappa=1.5)
    assert spans(done, DRAFT) == [(DRAFTER, 0, 3)]
    assert spans(done, VERIFY) == [(TARGET, 0, 6)]    # 2 of 5 seconds of work take 3
    assert done.totals[TARGET] == (5, 0, 1, 0)
    assert done.totals[DRAFTER] == (2, 0, 1, 3)


def test_work_one_after_another_knows_no_contention():
    apart = [Task(DRAFTER, 2, DRAFT), Task(TARGET, 3, VERIFY, (0,)), Task(TARGET, 1, VERDICT, (1,))]
    assert simulate(apart, kappa=4).seconds == simulate(apart).seconds == 6


def test_a_cancelled_task_gives_its_lane_back_and_counts_as_rolled_back():
    done = simulate([Task("one", 2, VERIFY), Task("two", 9, DRAFT, until=0), Task("two", 1, DRAFT, (0,))])
    assert [one[:4] for one in done.intervals if one.lane == "two"] == [("two", 0, 2, sim.ROLLED_BACK),
                                                                       ("two", 2, 3, DRAFT)]
    assert done.totals["two"] == (1, 2, 0, 0)


def test_a_task_cancelled_before_it_starts_takes_no_time():
    done = simulate([Task("one", 2, VERIFY), Task("two", 9, DRAFT, (0,), until=0)])
    assert done.seconds == 2
    assert done.totals["two"] == (0, 0, 0, 2)


def test_half_used_work_is_half_rolled_back_and_its_end_is_what_is_drawn_so():
    done = simulate([Task(DRAFTER, 4, DRAFT, useful=.25)])
    assert spans(done, DRAFT) == [(DRAFTER, 0, 1)]
    assert spans(done, sim.ROLLED_BACK) == [(DRAFTER, 1, 4)]
    assert done.totals[DRAFTER] == (1, 3, 0, 0)


def test_all_without_gap_or_overlap_on_each_lane_adds_up_to_the_whole():
    tasks = [Task("abc"[i % 3], 1 + i % 5 * .37, DRAFT, (i - 2,) if i > 1 else (), i, i % 4 / 3) for i in range(60)]
    for kappa in (1.0, 1.3):
        done = simulate(tasks, kappa)
        for lane, totals in done.totals.items():
            own = [one for one in done.intervals if one.lane == lane]
            assert own[0].start == 0
            assert own[-1].end == pytest.approx(done.seconds)
            assert all(one.end == pytest.approx(two.start) for one, two in zip(own, own[1:], strict=False))
            assert sum(totals) == pytest.approx(done.seconds)
            assert sum(one.end - one.start for one in own if one.kind == sim.WAIT) == pytest.approx(totals.waiting)


def test_what_cannot_run_is_refused():
    with pytest.raises(ValueError, match="wait for each other"):
        simulate([Task("one", 1, DRAFT, (1,)), Task("two", 1, DRAFT, (0,))])
    with pytest.raises(ValueError, match="kappa is at least 1, got 0.5"):
        simulate([], kappa=.5)
    assert simulate([]).seconds == simulate([]).rate == 0


def test_prices_of_branches_and_widths():
    costs = Calibration(2.0, {1: 5.0, 4: 6.0}, more=.5)
    assert costs.draft(6) == 12
    assert costs.draft(6, 3) == 2 * 2.0 * 2                # two steps of three rows, each half as dear again per branch
    assert Calibration(2.0).draft(6, 3) == 12              # one after another
    assert [costs.forward(width) for width in (1, 2, 4, 9)] == [5, 6, 6, 6]
    assert Calibration(forwards=lambda width: 10 + width).forward(3) == 13
    whole = Calibration(2.0, drafts={4: 5.0, 8: 6.0})
    assert [whole.draft(tokens) for tokens in (0, 3, 4, 8, 9)] == [0, 5, 5, 6, 18]       # 9: by steps
