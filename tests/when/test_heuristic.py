"""The heuristic schedule, worked by hand."""

from specdec_lib.drafting import certain_chain
from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Brief, Budget, Draft, Round, Verdict
from specdec_lib.when.heuristic import CARD, Heuristic
from tests.worlds import kit


def after(*rounds: tuple[int, int]):
    """A session whose rounds drafted and accepted so many tokens."""
    session = begin((1, 2), 500)
    for drafted, accepted in rounds:
        draft = certain_chain(range(drafted)) if drafted else Draft()
        verdict = Verdict.of(draft, tuple(range(accepted)), 9)
        session = session.after(Round(Budget(drafted), draft, Brief(None, None), verdict, ()))
    return session


def test_it_starts_at_five_grows_by_two_and_shrinks_by_one():
    depths = [Heuristic()(after(*rounds), NO_DICE).depth for rounds in
              [(), [(5, 5)], [(5, 5), (7, 3)], [(5, 5), (7, 3), (6, 0)]]]
    assert depths == [5, 7, 6, 5]


def test_it_never_falls_below_one_nor_rises_above_its_cap():
    assert Heuristic()(after(*[(5, 0)] * 9), NO_DICE).depth == 1
    assert Heuristic(cap=8)(after(*[(5, 5)] * 9), NO_DICE).depth == 8


def test_rounds_without_a_draft_change_nothing():
    assert Heuristic()(after((0, 0), (0, 0)), NO_DICE).depth == 5


def test_its_cap_comes_from_the_cost_curve():
    assert CARD.make(kit(nodes=5)).cap == 10
