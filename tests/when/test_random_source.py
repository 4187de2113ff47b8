from dataclasses import replace

import pytest

from specdec_lib.cards import Kit
from specdec_lib.dice import Dice
from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.when.random_source import CARD, RandomSource

COPY, MODEL = Budget.of("copy", 8), Budget.of("model", 5)


def sessions(count, id=""):
    """One session of every length."""
    first = begin((1, 2), 9000, id=id)
    return [replace(first, tokens=first.tokens + (3,) * i) for i in range(count)]


def fired(policy, sessions, dice=NO_DICE):
    return [policy(session, dice).source == "copy" for session in sessions]


def test_it_retrieves_in_the_given_share_of_rounds():
    assert abs(sum(fired(RandomSource(COPY, MODEL, .3), sessions(2000))) / 2000 - .3) < .04


def test_it_depends_on_the_session_alone_and_not_on_the_loops_dice():
    policy, there = RandomSource(COPY, MODEL, .5), sessions(50)
    assert fired(policy, there) == fired(policy, there[::-1])[::-1] == fired(policy, there, Dice(9))


def test_another_seed_or_prompt_draws_other_random_numbers():
    base = fired(RandomSource(COPY, MODEL, .5), sessions(50))
    assert base != fired(RandomSource(COPY, MODEL, .5, seed=1), sessions(50))
    assert base != fired(RandomSource(COPY, MODEL, .5), sessions(50, "qa-2"))


def test_rate_1_always_retrieves_and_rate_0_never():
    assert all(fired(RandomSource(COPY, MODEL, 1.0), sessions(50)))
    assert not any(fired(RandomSource(COPY, MODEL, 0.0), sessions(50)))


def test_after_an_empty_copy_the_model_drafts_with_its_own_budget():
    copies, = {RandomSource(COPY, MODEL, 1.0)(session, NO_DICE) for session in sessions(5)}
    assert copies == COPY.then(MODEL)
    assert {RandomSource(COPY, MODEL, 0.0)(session, NO_DICE) for session in sessions(5)} == {MODEL}


def test_both_budgets_come_from_the_kit_or_from_the_parameters():
    part = CARD.make(Kit(None, nodes=6))
    assert part.retrieve == Budget.of("feedback-retrieval", 6, 8, 6)
    assert part.model == Budget.of("eagle2", 6, 8, 6)
    part = CARD.make(Kit(None), rate=.2, retrieve="a", model="b", depth=4, width=2, nodes=5)
    assert part == RandomSource(Budget.of("a", 4, 2, 5), Budget.of("b", 4, 2, 5), .2)


def test_an_impossible_rate_is_refused():
    with pytest.raises(Refusal):
        RandomSource(COPY, MODEL, 1.2)
