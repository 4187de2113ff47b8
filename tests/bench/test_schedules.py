"""Rounds whose parts overlap: their wall time is what rates use, in memory and on disk."""

import pytest

from specdec_lib import measure
from specdec_lib.bench.results import Decode, read_results, tables
from specdec_lib.bench.runners import charged, run_timed
from specdec_lib.how.match import Match
from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Method
from specdec_lib.when.fixed import Fixed
from tests.test_loop import TEXT, knows, two_at_once
from tests.worlds import Scripted

OVERLAPPING = Method(Fixed(3), knows, Match(), two_at_once)


def outcome(method=OVERLAPPING):
    return run_timed(begin((1, 2), 6), Scripted((1, 2), TEXT), method, NO_DICE)


def test_an_overlapping_round_is_charged_its_wall_time_and_keeps_its_parts():
    row = outcome().rows[0]._replace(wall=1.0, when=0.0, what=0.8, target=0.9, how=0.1)
    assert charged(row, 1.25).seconds == 1.25
    assert charged(row, 1.25).what == 0.8
    assert charged(row._replace(wall=None), 2.0).how == pytest.approx(0.3)


def test_rates_use_wall_time_and_shares_the_time_of_all_parts():
    rows = [row._replace(wall=1.0, when=0.0, what=0.8, target=0.8, how=0.0) for row in outcome().rows]
    assert sum(row.seconds for row in rows) == len(rows)
    assert measure.time_share(rows) == {"target": 0.5, "drafter": 0.5, "overhead": 0.0}


def test_a_schedules_decode_takes_the_time_that_passed_and_not_the_sum_of_its_parts():
    done = outcome()
    assert done.seconds == pytest.approx(sum(row.wall for row in done.rows))
    assert done.seconds < sum(row.busy for row in done.rows)


def test_wall_time_is_written_and_read_back_and_serial_runs_have_no_such_column(tmp_path):
    for name, method in (("overlapping", OVERLAPPING), ("serial", OVERLAPPING._replace(schedule=None))):
        one = Decode(1, "qa", name, 0, 0, False, 2, outcome(method))
        made = tables([one])
        (tmp_path / name).mkdir()
        made.write(tmp_path / name)
        assert ("wall" in made.rounds.column_names) == (name == "overlapping")
        back, = read_results(tmp_path / name)
        kept, walls = ([row.wall for row in outcome.rows] for outcome in (back.outcome, one.outcome))
        assert kept == (pytest.approx(walls, rel=1 / 4_000) if name == "overlapping" else [None] * len(walls))


def test_a_run_of_both_kinds_keeps_which_rounds_have_no_wall_time(tmp_path):
    both = [Decode(1, "qa", name, 0, 0, False, 2, outcome(method)) for name, method in
            (("overlapping", OVERLAPPING), ("serial", OVERLAPPING._replace(schedule=None)))]
    tables(both).write(tmp_path)
    overlapping, serial = ([row.wall for row in one.outcome.rows] for one in read_results(tmp_path))
    assert all(wall > 0 for wall in overlapping)
    assert serial == [None] * len(serial)
