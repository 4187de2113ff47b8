"""Speed ratio: as many tokens as are drafted during one forward of the target, measured in the session's rounds."""

from dataclasses import replace

import pytest

from specdec_lib.loop import begin
from specdec_lib.scores import RowStats
from specdec_lib.types import NO_DICE, Budget, Draft, DraftedAhead, Refusal, Round, Seconds, Verdict
from specdec_lib.when.speed_ratio import SpeedRatio


def past(*rounds: tuple[float, float, int]):
    """A session whose rounds took these seconds of target and drafter for so many tokens drafted ahead."""
    made = tuple(Round(Budget(), Draft(), RowStats(None, None), Verdict((), (1,)), (0.0,), Seconds(0, what, target, 0),
                       DraftedAhead(tokens, 1, 0)) for target, what, tokens in rounds)
    return replace(begin((1, 2), 50), rounds=made)


def test_the_first_draft_has_the_first_length():
    assert SpeedRatio(first=3)(past(), NO_DICE).depth == 3
    assert SpeedRatio(first=3)(past((1.0, 0.0, 0)), NO_DICE).depth == 3


@pytest.mark.parametrize(("target", "what", "tokens", "length"),
                         [(1.0, 1.0, 4, 4), (1.0, 2.0, 4, 2), (1.0, 0.5, 5, 10), (1.0, 9.0, 3, 1), (1.0, 0.01, 4, 16)])
def test_the_length_is_the_ratio_of_a_forward_to_a_draft_step(target, what, tokens, length):
    assert SpeedRatio()(past((target, what, tokens)), NO_DICE).depth == length


def test_one_slow_round_does_not_decide():
    assert SpeedRatio()(past(*[(1.0, 1.0, 4)] * 4, (30.0, 1.0, 4)), NO_DICE).depth == 4


def test_only_the_last_rounds_count():
    assert SpeedRatio(window=2)(past((9.0, 1.0, 4), (9.0, 1.0, 4), (1.0, 1.0, 2), (1.0, 1.0, 2)), NO_DICE).depth == 2


@pytest.mark.parametrize(("by_level", "length"), [(False, 12), (True, 6)])
def test_several_branches_side_by_side_take_a_forward_for_each_level(by_level, length):
    """Two branches of six tokens took six forwards, which one forward of the target is worth."""
    session = past((6.0, 6.0, 12))
    one = replace(session.rounds[0], ahead=session.rounds[0].ahead._replace(made=12, levels=6))
    assert SpeedRatio(by_level=by_level)(replace(session, rounds=(one,)), NO_DICE).depth == length


@pytest.mark.parametrize("values", [{"first": 0}, {"first": 9, "longest": 8}, {"window": 0}])
def test_lengths_that_cannot_be_are_refused(values):
    with pytest.raises(Refusal, match="first <= longest"):
        SpeedRatio(**values)
    assert SpeedRatio(first=1)(past(), NO_DICE).depth == 1


def test_tokens_that_were_drafted_before_the_forward_count_as_well():
    """Where nothing is drafted beside the target, as in serial speculation, all of them were."""
    session = past((1.0, 1.0, 0))
    ahead = session.rounds[0].ahead._replace(made=4)
    assert SpeedRatio(first=3)(replace(session, rounds=(replace(session.rounds[0], ahead=ahead),)), NO_DICE).depth == 4
