"""What a policy computes from all rounds costs one round's work, and is what folding them anew gives."""

import pickle
import random
import sys
from dataclasses import replace
from functools import reduce

import pytest

from specdec_lib import catalog
from specdec_lib.how.consultant import Consultant, carried_surprise
from specdec_lib.loop import begin
from specdec_lib.running_fold import RunningFold
from specdec_lib.types import NO_DICE, Session
from tests.when.history import stat, turn
from tests.worlds import kit

POLICIES = ("adaedl", "adaptive-length", "adaptive-length(rule='printed')", "cost-optimal", "cost-optimal(fade=0.5)",
            "heuristic", "tapout", "tapout(level='depth')")
SORTS = "confidence(refit=True)"                   # up to 2,000 tokens in every round


def history(count: int, seed: int = 0, policy=None) -> list[Session]:
    """Sessions after 0 to `count` rounds with drafts that were accepted at random, under the policy's budgets."""
    dice, sessions = random.Random(seed), [begin((1, 2), 10_000)]
    for _ in range(count):
        drafted = dice.randint(1, 3)
        notes = policy(sessions[-1], NO_DICE).notes if policy else {}
        stats = tuple(stat(prob=dice.random()) for _ in range(drafted))
        round = turn(drafted, dice.randint(0, drafted), stats=stats, notes=notes)
        sessions.append(sessions[-1].after(replace(round, logprobs=(-dice.random(),) * len(round.verdict.tokens))))
    return sessions


def summed(before: int, round) -> int:
    return 3 * before + len(round.verdict.path)


def test_it_goes_on_where_the_rounds_go_on_and_begins_anew_where_they_do_not():
    fold, asked = RunningFold(), []

    def step(before, round):
        asked.append(round)
        return summed(before, round)

    one, other = history(9), history(9, 1)
    for session in (*one, one[4], *other[3:], one[9]):
        assert fold(step, session.rounds, 1) == reduce(summed, session.rounds, 1)
    asked.clear()
    assert fold(step, one[9].rounds, 1) == reduce(summed, one[9].rounds, 1)
    assert asked == []
    assert fold(step, one[9].rounds, 2) == reduce(summed, one[9].rounds, 2)
    odd = (one[9].rounds[0], turn(9, 9), *one[9].rounds[2:])
    assert fold(step, odd, 2) == reduce(summed, odd, 2) != reduce(summed, one[9].rounds, 2)


def test_a_copy_for_another_process_takes_no_rounds_along():
    fold = RunningFold()
    fold(summed, history(6)[-1].rounds, 0)
    assert len(pickle.dumps(fold)) < 100
    assert pickle.loads(pickle.dumps(fold))(summed, (), 5) == 5


def calls(policy, session: Session) -> int:
    """How many functions one call of the policy calls."""
    seen = []
    sys.setprofile(lambda frame, event, given: seen.append(event) if event in ("call", "c_call") else None)
    try:
        policy(session, NO_DICE)
    finally:
        sys.setprofile(None)
    return len(seen)


@pytest.mark.parametrize("spec", [*POLICIES, SORTS])
def test_a_policy_says_what_a_new_one_says_and_works_no_longer_after_more_rounds(spec):
    def made():
        return catalog.build(f"draft-model@{spec}", kit()).when

    policy = made()
    sessions = history(400, policy=policy)
    assert [policy(one, NO_DICE) for one in sessions[::40]] == [made()(one, NO_DICE) for one in sessions[::40]]
    counts = [calls(policy, one) for one in sessions]
    assert spec == SORTS or max(counts[300:]) <= 1.2 * max(counts[50:100])


def test_a_rule_that_carries_a_surprise_does_so_too():
    rule, sessions = Consultant(), history(300)
    for one in sessions:
        assert rule.fold(rule.after, one.rounds, None) == carried_surprise(one.rounds, rule.beta, rule.bonus)
