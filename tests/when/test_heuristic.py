"""The heuristic schedule, worked by hand."""

import pytest

from specdec_lib import catalog
from specdec_lib.loop import begin
from specdec_lib.scores import RowStats
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, Budget, Draft, Refusal, Round, Verdict
from specdec_lib.when.heuristic import CARD, Heuristic
from tests.worlds import kit


def after(*rounds: tuple[int, int]):
    """A session whose rounds drafted and accepted these numbers of tokens."""
    session = begin((1, 2), 500)
    for drafted, accepted in rounds:
        draft = deterministic_chain(range(drafted)) if drafted else Draft()
        verdict = Verdict.of(draft, tuple(range(accepted)), 9)
        session = session.after(Round(Budget(drafted), draft, RowStats(None, None), verdict, ()))
    return session


def test_it_starts_at_five_grows_by_two_and_shrinks_by_one():
    depths = [Heuristic()(after(*rounds), NO_DICE).depth for rounds in
              [(), [(5, 5)], [(5, 5), (7, 3)], [(5, 5), (7, 3), (6, 0)]]]
    assert depths == [5, 7, 6, 5]


def test_the_depth_stays_between_one_and_the_cap():
    assert Heuristic()(after(*[(5, 0)] * 9), NO_DICE).depth == 1
    assert Heuristic(cap=8)(after(*[(5, 5)] * 9), NO_DICE).depth == 8


def test_rounds_without_a_draft_change_nothing():
    assert Heuristic()(after((0, 0), (0, 0)), NO_DICE).depth == 5


def test_its_cap_comes_from_the_cost_curve():
    assert CARD.make(kit(nodes=5)).cap == 10


def test_svips_baseline_rises_by_two_to_forty_and_falls_by_one():
    rule, history, depths = Heuristic(), [], []
    for whole in [True] * 19 + [False] * 2 + [True]:
        depths.append(rule(after(*history), NO_DICE).depth)
        history.append((depths[-1], depths[-1] if whole else 0))
    assert depths == [*range(5, 40, 2), 40, 40, 39, 38]
    assert rule(after(*history), NO_DICE).depth == 40


def test_a_draft_shorter_than_the_budget_and_fully_accepted_is_a_success():
    assert Heuristic()(after((3, 3)), NO_DICE).depth == 7, "transformers compares with the drafted length"


def depths(world, *rounds):
    """The depths of one prompt, before each of these rounds and after the last, as the loop calls the policy."""
    rule = catalog.make_part("heuristic", world, remember=True)
    depths = [rule(after(*rounds[:n]), NO_DICE).depth for n in range(len(rounds) + 1)]
    for one in world.memory.values():
        one.finish(after(*rounds))
    return depths


def test_only_with_remember_the_depth_continues_across_prompts():
    memory = {}
    assert depths(kit(memory=memory), (5, 5), (6, 6)) == [5, 6, 6]                 # cap 6: twice three nodes
    assert depths(kit(memory=memory), (6, 0)) == [6, 5]
    assert depths(kit(memory=memory)) == [5]
    assert depths(kit()) == [5]
    world = kit(memory=memory)
    assert CARD.make(world)(after(), NO_DICE).depth == 5
    assert not kit().memory


def test_the_depth_depends_on_the_session_alone():
    rule = CARD.make(kit(memory={}), remember=True)
    sessions = [after(*[(5, 5)] * n) for n in range(3)]
    assert [rule(one, NO_DICE) for one in sessions] == [rule(one, NO_DICE) for one in sessions[::-1]][::-1]


def test_each_setting_has_its_own_memory():
    memory = {}
    assert depths(kit(memory=memory), (5, 0), (4, 0)) == [5, 4, 3]
    assert CARD.make(kit(memory=memory), start=4, remember=True)(after(), NO_DICE).depth == 4


@pytest.mark.parametrize("wrong", [{"start": 0}, {"cap": 0}, {"up": -1}, {"down": -1}], ids=str)
def test_an_impossible_schedule_is_refused(wrong):
    with pytest.raises(Refusal, match="at least 1"):
        CARD.make(kit(), **wrong)
