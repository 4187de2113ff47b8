"""A course of recorded texts: what would be kept, where rules stop, and what an oracle leaves to be won."""

import pytest

from specdec_lib import cost, measure
from specdec_lib.bench.draft_length import Course, length
from specdec_lib.bench.record import record
from specdec_lib.dice import Dice
from specdec_lib.drafting import prune
from specdec_lib.types import Budget, Refusal
from specdec_lib.when.adaedl import AdaEdl
from specdec_lib.when.confidence import Confidence, Unsure
from specdec_lib.when.fixed import Fixed
from specdec_lib.when.heuristic import Heuristic
from tests.worlds import PROMPT, kit

CURVE = cost.CostCurve((1, 4, 9), (8,), ((1.0, 1.2, 2.0),))
ABOUT = {"vocab": 3, "end": [], "pieces": {}}


@pytest.fixture(scope="module")
def course():
    tapes = {"one": record(PROMPT, kit(None), ["draft-model"], 30, about=ABOUT),
             "two": record((2, 1), kit(None), ["draft-model"], 12, about=ABOUT)}
    return Course(tapes, "draft-model", 4, CURVE, .1)


def test_the_right_length_is_what_a_full_draft_keeps_there(course):
    for name, tape in course.tapes.items():
        assert len(course.right[name]) == len(tape.output)
        here = 0
        for row in measure.rows(course.told(name, Fixed(4))):
            assert row.accepted == course.right[name][here]
            here += row.emitted
    assert {0, 1} <= set(course.right["one"])      # the target goes 0 1 2 0, the drafter knows one step of it


@pytest.mark.parametrize("threshold", [0.0, .45, .55, 1.0])
def test_rounds_worked_out_from_places_are_those_of_a_decode(course, threshold):
    for name in course.tapes:
        rows = measure.rows(course.told(name, Confidence(4, threshold)))
        lengths = course.lengths(name, Unsure(threshold))
        assert course.turns(name, lengths) == [(row.drafted, row.accepted) for row in rows]
    assert course.under(Unsure(threshold)) == course.played(Confidence(4, threshold))


@pytest.mark.parametrize("when", [AdaEdl(4, start=.7, step=.9), Heuristic(2, cap=4), Fixed(4, rate=.5)], ids=str)
def test_a_walk_takes_the_rounds_of_a_decode(course, when):
    for name in course.tapes:
        walked, told = course.walked(name, when, Dice(3)), course.told(name, when, Dice(3))
        assert [(r.budget, r.draft, r.verdict) for r in walked.rounds] == [
            (r.budget, r.draft, r.verdict) for r in told.rounds] and walked.tokens == told.tokens


def test_fixed_depths_need_no_rule(course):
    assert [course.under(None, depth) for depth in range(5)] == [course.played(Fixed(depth)) for depth in range(5)]


def test_the_length_under_a_rule_is_that_of_the_pruned_chain(course):
    for chain in course.chains["one"]:
        for threshold in (.0, .5, .6, 1.0):
            assert length(chain, Unsure(threshold)) == len(prune(chain, Budget(4, stop=Unsure(threshold))))


def test_the_oracle_drafts_nothing_in_vain_and_no_rule_is_faster(course):
    assert course.oracle.drafted == course.oracle.kept <= course.under(None).kept and course.oracle.regret == 0
    for found in [course.under(None, depth) for depth in range(5)] + [course.under(Unsure(x)) for x in (.4, .5, .6)]:
        assert found.regret > 0
    seer = course.played(lambda session, dice: Budget(course.quickest[session.id][len(session.output)]))
    assert seer == course.oracle


def test_where_drafting_is_dear_the_oracle_drafts_nothing(course):
    dear = Course(course.tapes, "draft-model", 4, CURVE, 2.0)
    assert dear.oracle.drafted == 0 and dear.oracle.speed == pytest.approx(1)


def test_regret_is_the_predicted_time_beyond_the_oracles(course):
    rows = [row for name in course.tapes for row in measure.rows(course.told(name, Fixed(2)))]
    tokens, spent = sum(row.emitted for row in rows), sum(CURVE(row.width) + .1 * row.depth for row in rows)
    found = course.under(None, 2)
    assert found.speed == pytest.approx(tokens / spent)
    assert found.regret == pytest.approx(course.oracle.speed * spent / tokens - 1) and found.regret > 0


def test_judged_tokens_are_those_whose_predecessors_were_right(course):
    told = course.judged(["two"])
    assert sum(right for _, right in told) == sum(course.right["two"])
    assert sum(not right for _, right in told) == sum(
        right < len(chain) for right, chain in zip(course.right["two"], course.chains["two"], strict=True))
    assert len(course.judged()) > len(told) and all(1 <= len(trail) <= 4 for trail, _ in told)


def test_a_course_without_depth_is_refused(course):
    with pytest.raises(Refusal, match="at least 1"):
        Course(course.tapes, "draft-model", 0, CURVE, .1)
