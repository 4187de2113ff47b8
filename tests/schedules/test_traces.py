"""Traces: what a logged decode is in simulated time, and drawn rounds against the closed forms."""

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.how.match import Match
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import decode
from specdec_lib.measure import rows
from specdec_lib.schedules import closed_forms as forms
from specdec_lib.schedules.overlap import Overlap
from specdec_lib.schedules.simulate import DRAFTER, TARGET, Calibration, simulate
from specdec_lib.schedules.traces import (
    DraftWork,
    LoggedRound,
    TraceRound,
    head_accepted,
    left_pending,
    logged,
    overlapped_rounds,
    pending,
    pipeline_trace,
    pipelined,
    replay,
    serial_rounds,
    tasks,
    trace,
)
from specdec_lib.types import Method
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.fixed import Fixed
from tests.worlds import DRAFT, PROMPT, WARM, Scripted, network_kit
from tests.worlds import TARGET as TABLE

HALVES = [{"pre": pre, "post": post} for pre in (True, False) for post in (True, False)]
ROUNDS = 8000


def near(value):
    return pytest.approx(value, rel=.03)


def decoded(length=3, tokens=60, seed=0, schedule=None):
    """The rounds of a decode of the table world."""
    method = Method(Fixed(length), DraftModel(DRAFT), Rejection(), schedule)
    *_, session = decode(PROMPT, TABLE, *method, max_new_tokens=tokens, sampling=WARM, dice=Dice(seed))
    return session


def scripted(draft, script, tokens=12, depth=3, **halves):
    method = Method(Fixed(depth), DraftModel(Scripted((1, 2), draft)), Match(), Overlap(**halves))
    *_, session = decode((1, 2), Scripted((1, 2), script), *method, max_new_tokens=tokens)
    return rows(session)


def counts(row):
    return LoggedRound(*(getattr(row, name) for name in LoggedRound._fields))


# --- against the closed forms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "length"), [(.5, 3), (.8, 10), (.95, 6)])
def test_serial_rounds_have_the_speed_of_the_closed_form(alpha, length):
    done = replay(serial_rounds(alpha, length, ROUNDS), Calibration(1.0, 10.0))
    assert done.seconds == pytest.approx(ROUNDS * (length + 10))
    assert 10 * done.rate == near(forms.serial_speed(alpha, length, 10))


@pytest.mark.parametrize(("alpha", "length", "ratio"), [(.5, 10, 10), (.8, 10, 10), (.9, 4, 10), (.8, 12, 7)])
def test_overlapped_rounds_have_the_speed_of_the_closed_form(alpha, length, ratio):
    done = replay(overlapped_rounds(alpha, length, ROUNDS), Calibration(1.0, float(ratio)))
    assert done.seconds == pytest.approx(ROUNDS * max(length, ratio))
    assert ratio * done.rate == near(forms.pearl_speed(alpha, ratio, length))


@pytest.mark.parametrize(("branches", "first", "more"), [(3, .9, 0.0), (3, .9, 1.0), (2, .7, .5)])
def test_branches_raise_the_first_acceptance_and_cost_their_steps(branches, first, more):
    drawn = overlapped_rounds(.6, 6, ROUNDS, branches=branches, first=first)
    steps = 6 * (1 + more * (branches - 1))
    assert 6 * replay(drawn, Calibration(1.0, 6.0, more=more)).rate == near(
        forms.two_mode_speed(.6, 6, 6, first, steps))


@pytest.mark.parametrize(("alpha", "layers", "leave"), [(.8, 24, 6), (.3, 24, 6), (.6, 24, 12), (.7, 20, 8)])
def test_the_pipeline_has_the_speed_of_the_closed_form(alpha, layers, leave):
    done = pipelined(alpha, layers, leave, 2500)
    assert layers * done.rate == near(forms.pipelined_speed(alpha, leave, layers))


def test_deterministic_cases_are_exact():
    right, wrong = Calibration(1.0, 5.0), replay(overlapped_rounds(0.0, 5, 40), Calibration(1.0, 5.0))
    done = replay(overlapped_rounds(1.0, 5, 40), right)
    assert (done.seconds, done.tokens) == (200, 1 + 39 * 5)
    assert (wrong.seconds, wrong.tokens) == (200, 40)
    assert wrong.totals[DRAFTER].rolled_back == 200
    # a pipeline that is always right writes a token every 6 layers, and the last one leaves after 24
    assert pipelined(1.0, 24, 6, 100).seconds == 99 * 6 + 24
    assert pipelined(0.0, 24, 6, 100).seconds == 100 * 24


def test_a_pipelines_younger_tokens_are_rolled_back_where_the_exit_was_wrong():
    done = pipelined(0.0, 24, 6, 10)
    lost = [done.totals[f"stage {n}"].rolled_back for n in (1, 2, 3, 4)]
    assert lost == [10 * 18, 10 * 12, 10 * 6, 0]


# --- of logged rounds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("halves", HALVES, ids=str)
def test_every_accepted_token_was_drafted_once_in_the_trace_or_during_the_prefill(halves):
    for seed in range(4):
        mine = rows(decoded(seed=seed, schedule=Overlap(**halves)))
        rounds = trace(mine)
        prefill = min(mine[0].accepted, pending(mine[0]))
        assert sum(one.before.useful + one.beside.useful for one in rounds) + prefill == sum(
            row.accepted for row in mine)
        assert all(0 <= work.useful <= work.tokens for one in rounds for work in (one.before, one.beside))


@pytest.mark.parametrize("halves", HALVES, ids=str)
def test_drawn_rounds_have_the_counts_that_the_schedule_logs(halves):
    """Perfect and useless drafters, both deterministic: the drawn rounds are the schedule's own."""
    text = tuple(3 + n % 20 for n in range(60))
    for alpha, draft in ((1.0, text), (0.0, (31,) * 60)):
        mine = [counts(row) for row in scripted(draft, text, 30, **halves)[1:4]]
        drawn = overlapped_rounds(alpha, 3, 8, **halves)
        start = drawn.index(mine[0])
        assert drawn[start:start + 3] == mine


def test_a_round_and_its_row_are_the_same_to_a_trace():
    for schedule in (None, Overlap()):
        session = decoded(schedule=schedule)
        assert trace([logged(one) for one in session.rounds]) == trace(rows(session))


def test_a_serial_traces_time_is_the_sum_of_its_parts():
    mine = rows(decoded())
    costs = Calibration(.25, lambda width: 2 + width / 8, .125)
    done = replay(mine, costs, kappa=1.5)
    assert done.seconds == pytest.approx(sum(.25 * row.drafted + 2 + (row.drafted + 1) / 8 + .125 for row in mine))
    assert done.tokens == sum(row.emitted for row in mine)
    assert done.totals[DRAFTER].contention == done.totals[TARGET].contention == 0


def test_a_parallel_trace_run_in_turn_takes_the_sum_and_in_parallel_the_longer_part():
    mine = rows(decoded(schedule=Overlap()))
    costs = Calibration(.5, 2.0)
    drafts = [.5 * (row.ahead or 0) for row in mine]
    assert replay(mine, costs, parallel=False).seconds == pytest.approx(sum(drafts) + 2 * len(mine))
    assert replay(mine, costs).seconds == pytest.approx(sum(max(one, 2.0) for one in drafts))


def test_a_round_begins_when_both_sides_have_ended_the_one_before():
    """A long draft beside a short forward, then the reverse: each round takes its longer side."""
    rounds = [TraceRound(DraftWork(), DraftWork(10, 1, 0), 1, 1), TraceRound(DraftWork(), DraftWork(2, 1, 0), 9, 1)]
    done = simulate(tasks(rounds, Calibration(1.0, {1: 2.0, 9: 10.0})))
    assert done.seconds == 20
    assert [(one.start, one.end) for one in done.intervals if one.kind == "verify"] == [(0, 2), (10, 20)]


def test_without_pre_verification_the_first_draft_after_a_rejection_delays_the_forward():
    text = tuple(3 + n % 20 for n in range(60))
    wrong = scripted((31,) * 60, text, 20, pre=False)
    assert trace(wrong)[1] == TraceRound(DraftWork(3, 1, 0), DraftWork(3, 1, 0), 4, 1)
    assert trace(scripted((31,) * 60, text, 20))[1] == TraceRound(DraftWork(), DraftWork(3, 1, 0), 1, 1)
    done = replay(wrong[1:3], Calibration(1.0, 4.0))
    assert done.seconds == (4.0) + (3 + 4)          # what is pending in the first round of a trace is not timed


def test_an_accepted_first_token_ends_the_verdict_or_leaves_its_draft_pending():
    assert head_accepted(LoggedRound(4, 4, 4, 4, 3, 1, 0))         # three pending, two left
    assert head_accepted(LoggedRound(4, 4, 4, 4, 1, 1, 0))         # a draft of one token leaves none
    assert not head_accepted(LoggedRound(4, 3, 4, 4, 3, 1, 3))
    assert head_accepted(LoggedRound(5, 3, 3, 3, 6, 3, 4))         # two pending, three alternatives of two tokens
    assert left_pending(LoggedRound(5, 3, 3, 3, 6, 3, 4)) == 1
    assert not head_accepted(LoggedRound(3, 3, 4, 3, 0, 0, 0))     # nothing new was drafted
    assert not head_accepted(LoggedRound(3, 3, 4, 3))


def test_after_an_accepted_draft_of_one_token_nothing_is_pending():
    """Then the draft before the next forward is a new one, and is timed."""
    text = tuple(3 + n % 20 for n in range(60))
    mine = scripted(text, text, 20, depth=1, pre=False)
    assert [one.before.tokens for one in trace(mine)[1:4]] == [1, 1, 1]


@pytest.mark.parametrize("drawn", [overlapped_rounds(.7, 6, 300, 1), overlapped_rounds(.7, 6, 300, 1, pre=False),
                                   serial_rounds(.7, 6, 300, 1)], ids=["pearl", "no pre", "serial"])
def test_time_rises_with_contention_by_no_more_than_its_factor(drawn):
    seconds = [replay(drawn, Calibration(1.0, 6.5, .1), kappa).seconds for kappa in (1.0, 1.2, 1.5, 2.0)]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= 2 * seconds[0]


def test_contention_makes_overlap_dearer_and_leaves_the_serial_schedule_alone():
    costs = Calibration(1.0, 6.0)
    drawn = overlapped_rounds(.7, 6, 100, 1)
    assert replay(drawn, costs, 2.0).seconds == pytest.approx(2 * replay(drawn, costs).seconds)
    assert replay(drawn, costs, 2.0, parallel=False).seconds == replay(drawn, costs, parallel=False).seconds


def test_an_exit_outside_of_the_layers_is_refused():
    with pytest.raises(ValueError, match="one of 24 layers, got 25"):
        pipelined(.5, 24, 25, 3)


# --- of a pipeline's rounds -------------------------------------------------------------------------------------------


def piped(right, ahead=1):
    """The counts that `schedules.pipeline` logs: `right[i]` says whether the token tested in round i is the target's.

    Up to `ahead` tokens are under way beyond the tested one; in the last rounds no more than may still be emitted.
    """
    out, under = [], 1
    for place, accepted in enumerate(right):
        under = under or 1
        more = max(0, min(ahead + 1, len(right) - place) - under)
        under += more
        out.append(LoggedRound(1, int(accepted), 1, 1, more, min(1, more), 0 if accepted else under))
        under = under - 1 if accepted else 0
    return out


def test_a_pipelines_round_draws_before_its_row_where_nothing_is_under_way():
    mine = piped([True, False, True, True, False, True])
    rounds = pipeline_trace(mine)
    assert [one.before.tokens for one in rounds] == [0, 0, 1, 0, 0, 1]
    assert [one.beside.tokens for one in rounds] == [1, 1, 1, 1, 1, 0]
    # used: round 0 draws the token that round 1 rejects; round 2's own first, and what it drew beside, are accepted
    assert [(one.before.useful, one.beside.useful) for one in rounds] == [(0, 0), (0, 0), (1, 1), (0, 0), (0, 0),
                                                                          (1, 0)]
    assert {one.width for one in rounds} == {1}


def test_a_pipelines_simulated_time_is_that_of_its_stages():
    """Stages of 3 and 5 seconds: a round takes the longer one, and a first token is waited for."""
    costs = Calibration(3.0, 5.0, .5)
    right = replay(piped([True] * 10), costs, read=pipeline_trace)
    wrong = replay(piped([False] * 10), costs, read=pipeline_trace)
    assert (right.seconds, right.tokens) == (pytest.approx(10 * 5.5), 10)
    assert wrong.seconds == pytest.approx(10 * 5.5 + 9 * 3)
    assert wrong.totals[DRAFTER].useful == 0
    assert right.totals[DRAFTER].rolled_back == 0
    in_turn = replay(piped([True] * 10), costs, parallel=False, read=pipeline_trace)
    assert in_turn.seconds == pytest.approx(10 * 5.5 + 9 * 3)
    slow = replay(piped([True] * 10), Calibration(7.0, 5.0), read=pipeline_trace)
    assert slow.seconds == pytest.approx(9 * 7 + 5)


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_a_decode_in_a_pipeline_logs_these_counts_and_every_accepted_token_was_drawn_once(ahead):
    world = network_kit()
    method = catalog.build(f"ppsd(layer=1, ahead={ahead})", world)
    *_, session = decode((0, 1), world.target, *method, max_new_tokens=24, sampling=WARM, dice=Dice(3))
    mine = rows(session)
    assert [counts(row) for row in mine] == piped([row.accepted == 1 for row in mine], ahead)
    used = sum(one.before.useful + one.beside.useful for one in pipeline_trace(mine))
    assert used + mine[0].accepted == sum(row.accepted for row in mine)
    assert 0 < used < len(mine)
