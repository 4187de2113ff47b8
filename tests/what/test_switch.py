import pytest

from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, Budget, Draft, Refusal, Session
from specdec_lib.what.switch import Switch

SESSION = Session((1, 2), 2, 9)


def says(*tokens):
    return lambda session, budget, dice: deterministic_chain(tokens)


def ask(drafters, source=""):
    return Switch(drafters)(SESSION, Budget(3, source=source), NO_DICE)


def test_the_drafter_that_the_budget_names_speaks():
    both = {"a": says(1), "b": says(2)}
    assert ask(both, "a").tokens == (1,)
    assert ask(both, "b").tokens == (2,)


def test_without_a_name_the_first_drafter_speaks():
    assert ask({"a": says(1), "b": says(2)}).tokens == (1,)


def test_an_empty_draft_falls_through_to_the_others_in_order():
    assert ask({"a": says(1), "b": says(2), "c": says()}, "c").tokens == (1,)
    assert ask({"a": says(), "b": says(2)}, "a").tokens == (2,)
    assert ask({"a": says(), "b": says()}, "a") == Draft()


def test_who_speaks_instead_has_the_budget_that_was_meant_for_it():
    asked = []

    def heard(name, *tokens):
        return lambda session, budget, dice: asked.append((name, budget)) or deterministic_chain(tokens)

    drafters = {"a": heard("a"), "b": heard("b", 1)}
    for own, other in ((Budget(9, source="a", instead=Budget(2, 3)), Budget(2, 3)), (Budget(9, source="a"),) * 2):
        asked.clear()
        Switch(drafters)(SESSION, own, NO_DICE)
        assert asked == [("a", own), ("b", other)]


def test_a_drafter_that_need_not_speak_is_not_asked():
    asked = []

    def noisy(session, budget, dice):
        asked.append("b")
        return Draft()

    ask({"a": says(1), "b": noisy}, "a")
    assert asked == []


def test_a_name_that_no_drafter_has_is_refused():
    with pytest.raises(Refusal, match="names 'x'"):
        ask({"a": says(1)}, "x")
