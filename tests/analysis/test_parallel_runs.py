"""Runs of parallel methods: three kinds of time in three columns, and a simulation that answers to a measurement."""

import pytest

from specdec_lib.analysis import parallel_runs as runs
from specdec_lib.analysis.parallel_published import PRICES, PUBLISHED
from specdec_lib.schedules.simulate import DRAFTER, TARGET
from specdec_lib.schedules.traces import guided_trace, overlapped_rounds, pipeline_trace, trace
from specdec_lib.types import Refusal
from tests.bench.made_up import decodes, report, turn
from tests.schedules.test_traces import piped

STEP, FORWARD, REST = .01, .1, .005


def logged_rows(kappa=None, handover=0.0, rounds=60, seed=3, length=10):
    """PEARL's rounds at known costs, measured in turn; in parallel if `kappa` is given, with contention."""
    slower = kappa or 1.0
    return [turn(one.drafted, one.accepted)._replace(
        emitted=one.emitted, depth=one.depth, ahead=one.ahead, branches=one.branches, discarded=one.discarded, when=0.0,
        what=STEP * one.ahead * slower, target=FORWARD * slower, how=REST, tokens=(7,) * one.emitted,
        wall=None if kappa is None else max(STEP * one.ahead, FORWARD) * slower + REST + handover)
        for one in overlapped_rounds(.8, length, rounds, seed)]


def run_of(*rows, more=()):
    plain = decodes("ar", *[turn(0, 0, target=FORWARD)] * 20)
    return report(plain, *(decodes(name, *some) for name, some in zip(("pearl", *more), rows, strict=True)))


def test_calibration_finds_the_prices_that_the_rounds_were_made_with():
    costs = runs.calibrate([logged_rows()])
    assert costs.step == pytest.approx(STEP)
    assert costs.verdict == pytest.approx(REST)
    assert costs.forwards == {1: pytest.approx(FORWARD), 10: pytest.approx(FORWARD)}
    assert runs.calibrate([logged_rows(1.5, .02)]).verdict == pytest.approx(REST + .02)
    with pytest.raises(Refusal, match="no rounds"):
        runs.calibrate([])


def test_a_measured_run_is_simulated_as_it_was_measured():
    turned, beside = runs.check_time([logged_rows()] * 3), runs.check_time([logged_rows(1.5, .02)] * 3)
    assert (turned.kind, beside.kind) == ("in turn", "in parallel")
    assert turned.ratio == pytest.approx(1)
    assert beside.ratio == pytest.approx(1)
    assert turned.measured == pytest.approx(3 * 60 * (10 * STEP + FORWARD + REST))


def test_each_half_of_the_decodes_is_simulated_at_the_costs_of_the_other():
    slow = [row._replace(what=row.what * 1.4, target=row.target * 1.4) for row in logged_rows()]
    assert runs.check_time([logged_rows(), slow, logged_rows()]).ratio == pytest.approx(
        (2 * .285 + .205) / (2 * .205 + .285))
    assert runs.check_time([logged_rows(), slow] * 2).ratio == pytest.approx(1), "a machine that changes is no error"


def test_a_drafter_that_makes_several_tokens_in_a_step_is_priced_by_its_drafts():
    """One step each, whatever a draft holds: by seconds of a token, the long ones would be too dear."""
    rows = [row._replace(ahead=2 + 9 * (number % 3 == 0), what=.08, discarded=None)
            for number, row in enumerate(logged_rows())]
    costs = runs.calibrate([rows])
    assert costs.drafts == {2: pytest.approx(.08), 11: pytest.approx(.08)}
    assert runs.check_time([rows] * 2).ratio == pytest.approx(1)
    assert costs.step * 11 > 3 * costs.draft(11)


def test_the_gate_can_fail():
    waits = [row._replace(target=row.target * (9 if number % 5 == 0 else 1))
             for number, row in enumerate(logged_rows())]
    check = runs.check_time([waits] * 2)           # medians leave the long waits out
    assert check.ratio == pytest.approx(.205 / (.205 + .8 / 5), rel=.1)
    assert not check.passes
    assert runs.TimeCheck("in turn", 1.0, 1.14).passes
    assert not runs.TimeCheck("in turn", 1.0, 1.16).passes
    assert not runs.TimeCheck("in turn", 1.0, .84).passes


def test_three_kinds_of_time_stand_in_three_columns():
    table = runs.time_table(run_of(logged_rows(), logged_rows(1.5), [turn(2, 1)] * 5,
                                   more=("pearl(workers='process')", "draft-model")))
    turned, beside, serial = (table[name] for name in ("pearl", "pearl(workers='process')", "draft-model"))
    assert turned["measured in parallel"] is beside["measured in turn"] is serial["measured in parallel"] is None
    assert turned["measured in turn"] < 1.5 < turned["simulated in parallel, kappa 1"]
    assert serial["simulated in parallel, kappa 1"] is None
    # in turn a round takes 205 ms, simulated in parallel 105
    assert turned["simulated in parallel, kappa 1"] / turned["measured in turn"] == pytest.approx(205 / 105, rel=1e-3)


def test_contention_slows_the_simulated_speed_down_and_is_measured_from_both_runs():
    found = run_of(logged_rows())
    assert runs.simulated_speed(found, "pearl", 1.5) < runs.simulated_speed(found, "pearl", 1.0)
    contended = run_of(logged_rows(1.5))           # its costs include contention already
    assert runs.simulated_speed(contended, "pearl", 1.5) == runs.simulated_speed(contended, "pearl", 1.0)
    assert runs.measured_contention([logged_rows()], [logged_rows(1.5)]) == pytest.approx(1.5)
    assert runs.measured_contention([logged_rows(1.5)], [logged_rows()]) == 1
    slow = [row._replace(what=1.5 * row.what, target=1.5 * row.target) for row in piped_rows(RIGHT)]
    assert runs.measured_contention([piped_rows(RIGHT)], [slow], pipeline_trace) == pytest.approx(1.5)


def test_shares_of_each_lane_add_up():
    found = run_of(logged_rows())
    some = runs.rounds_of(found, "pearl")
    lanes = runs.shares(runs.simulated(some, runs.calibrate(some)))
    assert [sum(lanes[lane]) for lane in (DRAFTER, TARGET)] == pytest.approx([1, 1])
    assert runs.shares(runs.simulated([logged_rows(length=40)], runs.calibrate([logged_rows()])))[TARGET].waiting > .7


def test_a_gate_table_has_a_row_for_everything_with_rounds():
    table = runs.gate_table(run_of(logged_rows()))
    assert list(table) == ["ar", "pearl"]
    assert {row["within 15%"] for row in table.values()} == {"yes"}


def test_a_machines_point_is_its_acceptance_and_the_steps_of_a_forward():
    alpha, ratio = runs.acceptance_and_ratio(run_of(logged_rows(rounds=600)), "pearl")
    assert alpha == pytest.approx(.8, abs=.03)
    assert ratio == pytest.approx(FORWARD / STEP)
    assert runs.acceptance_and_ratio(run_of(logged_rows()), "ar") is None
    untested = [turn(0, 0)._replace(ahead=2, branches=0, discarded=2, what=2 * STEP)] * 4
    assert runs.acceptance_and_ratio(run_of(untested), "pearl") is None
    wide = [row._replace(target=FORWARD * (1 + 3 * (row.drafted > 1))) for row in logged_rows(length=4)]
    assert sum(row.drafted > 1 for row in wide) < len(wide) / 2, "most forwards have one row"
    assert runs.acceptance_and_ratio(run_of(wide), "pearl")[1] == pytest.approx(FORWARD / STEP)


def test_a_guides_nodes_are_no_draft_steps():
    guided = [turn(3, 2)._replace(ahead=4, branches=0, discarded=5, what=4 * STEP, target=FORWARD)] * 4
    assert runs.acceptance_and_ratio(run_of(logged_rows(), guided, more=("double",)), "double") == pytest.approx(
        (2 / 3, FORWARD / STEP))


def test_claims_are_found_by_the_methods_name_and_have_a_source():
    found = runs.claims_beside(run_of(logged_rows(), [turn(2, 1)] * 5, more=("draft-model",)))
    assert [one["method"] for one in found] == ["pearl"]
    several = ("pearl(depth=4)", "pearl(drafter='suffix-automaton')")
    assert [one["method"] for one in runs.claims_beside(run_of(*[logged_rows()] * 3, more=several))] == ["pearl"]
    assert all(claim.source and claim.read in ("abstract", "code", "second hand") for claim in PUBLISHED.values())
    assert all(price.ratio >= 1 for price in PRICES.values())


def test_a_run_without_a_parallel_method_is_refused_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "load_report", lambda run: run_of([turn(2, 1)] * 5))
    with pytest.raises(Refusal, match="specdec bench"):
        runs.read_parallel(str(tmp_path))
    monkeypatch.setattr(runs, "load_report", lambda run: run_of(logged_rows()))
    assert runs.read_parallel("here")[1] == "Read from here."


def piped_rows(right, stage=.04, upper=.06, rest=.003):
    """PPSD's rounds in parallel at known costs, which log one tested token each."""
    out = []
    for row, one in zip(piped(right), pipeline_trace(piped(right)), strict=True):
        alone, drawn = stage * one.before.tokens, stage * one.beside.tokens
        out.append(turn(1, row.accepted)._replace(
            emitted=1, depth=1, ahead=row.ahead, branches=row.branches, discarded=row.discarded, when=0.0, how=rest,
            what=alone + drawn, target=upper, tokens=(7,), wall=alone + max(drawn, upper) + rest))
    return out


RIGHT = [place % 5 in (1, 2) for place in range(60)]


def test_a_pipelines_rounds_are_simulated_as_they_were_measured_and_stand_in_the_gate():
    mine = piped_rows(RIGHT)
    costs = runs.calibrate([mine], pipeline_trace)
    assert (costs.step, costs.verdict) == (pytest.approx(.04), pytest.approx(.003))
    assert costs.forwards == {1: pytest.approx(.06)}
    check = runs.check_time([mine] * 2, pipeline_trace)
    assert (check.kind, check.ratio) == ("in parallel", pytest.approx(1))
    found = run_of(logged_rows(), mine, more=("ppsd(layer=9)",))
    line = runs.time_table(found)["ppsd(layer=9)"]
    assert line["measured in parallel"] > 0
    assert line["simulated in parallel, kappa 1"] == pytest.approx(
        FORWARD * len(mine) / sum(row.seconds for row in mine))
    assert runs.gate_table(found)["ppsd(layer=9)"]["within 15%"] == "yes"
    assert runs.acceptance_and_ratio(found, "ppsd(layer=9)") is None


def test_rounds_are_read_as_their_schedule_counts():
    readers = {"pearl": trace, "double": guided_trace, "double(depth=2)@svip": guided_trace,
               "double(guide=False)": trace, "sam (warm)": trace, "ppsd(layer=9)": pipeline_trace}
    assert {spec: runs.reader_of(spec) for spec in readers} == readers


def test_rounds_of_a_pipeline_read_as_pearls_would_fail_the_gate():
    """Why a pipeline has a reader of its own: what the second stage waits for is in no count of PEARL."""
    assert not runs.check_time([piped_rows(RIGHT)] * 2).passes
