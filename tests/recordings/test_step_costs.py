"""Costs of recorded drafters in plain forwards: the clock of a recording is set by layers whose cost is counted."""

from dataclasses import replace
from statistics import median

import pytest

from specdec_lib.recordings.folder import load_recordings
from specdec_lib.recordings.step_costs import CLOCK, FIRST, SHAPE, first_layers_cost, step_costs


def test_the_cost_of_first_layers_is_what_they_read():
    layer, head = 576 * (64 * 24 + 3 * 1536), 576 * 49152
    assert first_layers_cost(SHAPE, FIRST) == pytest.approx((6 * layer + head) / (30 * layer + head))
    assert first_layers_cost(SHAPE, 30) == 1


def test_all_drafters_are_timed_by_the_clock_of_their_recording():
    one = next(iter(load_recordings().values()))
    costs = step_costs(one, 123.0)
    assert costs[CLOCK] == first_layers_cost(SHAPE, FIRST)
    assert costs["suffix-automaton"] < 0.01 < costs["eagle"] < costs[CLOCK]
    slower = replace(one, seconds={name: {length: [3 * s for s in some] for length, some in took.items()}
                                   for name, took in one.seconds.items()})
    assert step_costs(slower, 123.0) == pytest.approx(costs)


def test_places_at_which_a_drafter_was_not_asked_count_for_nothing():
    one = next(iter(load_recordings().values()))
    more = {"own run": {8: [0.0] * 99 + [median(one.seconds[CLOCK][8])]}, "never": {8: [0.0]}}
    costs = step_costs(replace(one, seconds={**one.seconds, **more}), 1.0)
    assert costs["own run"] == pytest.approx(costs[CLOCK])
    assert "never" not in costs
    assert 0 < step_costs(load_recordings()["rag"], 1.0)["token-recycling"] < 0.01     # asked at 58 of 128 places


@pytest.mark.parametrize("lacking", ["clock", "target"])
def test_without_the_clock_seconds_are_those_of_the_machine_that_is_asked_about(lacking):
    one = next(iter(load_recordings().values()))
    other = replace(one, about={**one.about, "target": {"name": "another"}}) if lacking == "target" else replace(
        one, seconds={name: took for name, took in one.seconds.items() if name != CLOCK})
    costs = step_costs(other, 2.0)
    assert costs["eagle"] == pytest.approx(2 * step_costs(other, 4.0)["eagle"])
    assert costs["eagle"] == pytest.approx(median(other.seconds["eagle"][8]) / 8 / 2.0)
