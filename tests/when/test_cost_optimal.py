"""The cost-optimal length: estimates by hand, and the choice against exhaustive search."""

import itertools
from math import prod

import pytest

from specdec_lib.cost.curves import CostCurve
from specdec_lib.loop import begin
from specdec_lib.scores import RowStats
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, Budget, Draft, Refusal, Round, Verdict
from specdec_lib.when.cost_optimal import CARD, CostOptimal, StraightLine, acceptance
from tests.worlds import kit

FREE = StraightLine(0.0)
CURVE = CostCurve((1, 4, 8, 16), (8, 64), ((1.0, 1.1, 1.4, 3.0), (2.0, 2.2, 3.5, 7.0)))


def rounds(*pairs: tuple[int, int]) -> tuple[Round, ...]:
    """Rounds that drafted and accepted these numbers of tokens."""
    out = []
    for drafted, accepted in pairs:
        draft = deterministic_chain(range(drafted)) if drafted else Draft()
        out.append(Round(Budget(drafted), draft, RowStats(None, None), Verdict.of(draft, tuple(range(accepted)), 9),
                         ()))
    return tuple(out)


def after(*pairs: tuple[int, int], prompt: int = 8):
    session = begin(range(prompt), 5000)
    for round in rounds(*pairs):
        session = session.after(round)
    return session


def by_hand(probs, seconds, lengths) -> int:
    """The best length, with every outcome of every draft weighted by its probability."""
    def tokens(n):
        total = 0.0
        for kept in itertools.product((True, False), repeat=n):
            prob = prod(a if yes else 1 - a for a, yes in zip(probs, kept, strict=False))
            total += prob * (1 + len(list(itertools.takewhile(bool, kept))))
        return total
    return max(lengths, key=lambda n: tokens(n) / seconds(n))


def test_without_observations_every_depth_has_the_prior():
    assert acceptance((), 3, .6, 4) == pytest.approx((.6, .6, .6))


def test_observations_are_combined_with_the_prior_per_depth():
    # depth 1: three offered, two accepted; depth 2: two offered, one accepted; depth 3: one offered, none accepted
    observed = rounds((3, 2), (0, 0), (2, 1), (4, 0))
    one = (4 * .5 + 2) / 7
    two = (4 * one + 1) / 6
    assert acceptance(observed, 3, .5, 4) == pytest.approx((one, two, (4 * two + 0) / 5))


def test_a_fully_accepted_draft_is_no_trial_of_the_next_depth():
    assert acceptance(rounds((2, 2)), 3, .5, 1) == pytest.approx((.75, .875, .875))


def test_faded_rounds_count_less():
    # the newer round counts 1, the older one 0.5; the round without a draft does not fade the others
    assert acceptance(rounds((1, 1), (0, 0), (1, 0)), 1, .5, 2, .5) == pytest.approx(((1 + .5) / (2 + 1.5),))


@pytest.mark.parametrize("seconds", [FREE, StraightLine(.05), StraightLine(.5), CURVE])
@pytest.mark.parametrize("own", [(0.0, 0.0), (.1, 0.0), (0.0, .4)])
def test_the_length_is_the_best_by_exhaustive_search(seconds, own):
    for history in ((), ((8, 0),) * 3, ((8, 8),) * 9, ((8, 3),) * 20, ((8, 1), (1, 1), (1, 1), (1, 0))):
        session = after(*history)
        policy = CostOptimal(seconds, 8, 0, *own)
        probs = acceptance(session.rounds, 8, .5, 4)
        context = len(session.tokens)

        def spent(n, context=context):
            return seconds(n + 1, context) + (n > 0) * (own[0] * n + own[1]) * seconds(1, context)

        assert policy(session, NO_DICE) == Budget(by_hand(probs, spent, range(9)))
        assert CostOptimal(seconds, 6, 2, *own)(session, NO_DICE).depth == by_hand(probs, spent, range(2, 7))


def test_acceptance_lengthens_and_rejection_shortens():
    policy = CostOptimal(StraightLine(.03), 12)
    assert policy(after(*[(6, 6)] * 9), NO_DICE).depth == 12
    assert policy(after(*[(6, 0)] * 9), NO_DICE).depth == 1
    assert 1 < policy(after(*[(6, 2)] * 9), NO_DICE).depth < 6


def test_a_more_expensive_drafter_drafts_less():
    session = after(*[(6, 4), (6, 6)] * 4)
    depths = [CostOptimal(StraightLine(.03), 12, per_token=c)(session, NO_DICE).depth for c in (0, .1, .3, .8)]
    assert depths == sorted(depths, reverse=True)
    assert depths[0] > depths[-1]


def test_it_stops_drafting_only_with_shortest_0():
    hopeless = after(*[(4, 0)] * 30)
    assert CostOptimal(StraightLine(.1), 8)(hopeless, NO_DICE).depth == 1
    assert CostOptimal(StraightLine(.1), 8, 0)(hopeless, NO_DICE).depth == 0


def test_the_curve_is_read_at_the_current_context_length():
    contexts = []
    CostOptimal(lambda width, context: contexts.append(context) or 1.0, 3)(after((2, 1)), NO_DICE)
    assert set(contexts) == {10}


def test_the_length_depends_on_the_session_alone():
    sessions = [after(*[(6, i % 7)] * i) for i in range(9)]
    policy = CostOptimal(StraightLine(.05), 8, fade=.9)
    forth = [policy(session, NO_DICE) for session in sessions]
    assert [policy(session, NO_DICE) for session in reversed(sessions)][::-1] == forth
    assert len(set(forth)) > 2


def test_costs_and_limits_come_from_the_kit():
    assert [StraightLine(.5)(width) for width in (1, 2, 4)] == [1, 1.5, 2.5]
    assert CARD.make(kit(nodes=5)) == CostOptimal(StraightLine(.03), 10)
    assert CARD.make(kit(cost=CURVE), longest=3).seconds is CURVE


@pytest.mark.parametrize("wrong", [{"shortest": -1}, {"shortest": 7}, {"longest": 10_001}, {"per_token": -1},
                                   {"per_block": -1}, {"prior": 1.1}, {"weight": 0}, {"fade": 0}], ids=str)
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal):
        CARD.make(kit(), **wrong)
