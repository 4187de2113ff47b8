"""Draft forwards: the ratio of a target forward to a forward of the drafter, whatever tokens that gives."""

from dataclasses import replace

import pytest

from specdec_lib.loop import begin
from specdec_lib.scores import RowStats
from specdec_lib.types import FORWARDS, NO_DICE, Budget, Draft, DraftedAhead, Refusal, Round, Seconds, Verdict
from specdec_lib.when.draft_forwards import DraftForwards


def past(*rounds: tuple[float, float, int, int]):
    """A session whose rounds took these seconds of target and drafter for so many forwards and tokens."""
    made = tuple(Round(Budget(9, notes={FORWARDS: forwards}), Draft(), RowStats(None, None), Verdict((), (1,)), (0.0,),
                       Seconds(0, what, target, 0), DraftedAhead(tokens, 1, 0))
                 for target, what, forwards, tokens in rounds)
    return replace(begin((1, 2), 90), rounds=made)


def test_a_given_number_stands_and_its_depth_leaves_room_for_what_is_retrieved():
    budget = DraftForwards(3, retrieved=4)(past((1.0, 0.1, 2, 2)), NO_DICE)
    assert (budget.notes[FORWARDS], budget.depth) == (3, 15)


def test_the_first_draft_has_the_first_number():
    assert DraftForwards(first=3)(past(), NO_DICE).notes[FORWARDS] == 3


@pytest.mark.parametrize(("what", "forwards", "tokens", "ratio"),
                         [(1.0, 4, 4, 4), (1.0, 4, 30, 4), (0.5, 2, 9, 4), (9.0, 1, 1, 1), (0.01, 4, 4, 16)])
def test_the_measured_ratio_counts_forwards_and_not_tokens(what, forwards, tokens, ratio):
    assert DraftForwards()(past((1.0, what, forwards, tokens)), NO_DICE).notes[FORWARDS] == ratio


def test_one_slow_round_does_not_decide_and_old_ones_do_not_count():
    assert DraftForwards()(past(*[(1.0, 1.0, 4, 4)] * 4, (30.0, 1.0, 4, 4)), NO_DICE).notes[FORWARDS] == 4
    assert DraftForwards(window=1)(past((9.0, 1.0, 4, 4), (1.0, 1.0, 2, 2)), NO_DICE).notes[FORWARDS] == 2


@pytest.mark.parametrize("values", [{"forwards": 0}, {"retrieved": -1}, {"first": 0}, {"window": 0}])
def test_numbers_that_cannot_be_are_refused(values):
    with pytest.raises(Refusal, match="forwards must"):
        DraftForwards(**values)
    assert DraftForwards(3, retrieved=0)(past(), NO_DICE).depth == 3


def test_the_forwards_are_those_of_the_draft_that_the_rounds_seconds_made():
    """A round of a schedule that overlaps tests an older draft, whose budget stands beside."""
    session = past((1.0, 1.0, 2, 4))
    ahead = session.rounds[0].ahead._replace(asked=Budget(9, notes={FORWARDS: 8}))
    session = replace(session, rounds=(replace(session.rounds[0], ahead=ahead),))
    assert DraftForwards()(session, NO_DICE).notes[FORWARDS] == 8
