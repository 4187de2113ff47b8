import pytest

from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, Budget, Draft, Refusal, Session
from specdec_lib.what.switch import Switch

SESSION = Session((1, 2), 2, 9)


def proposing(*tokens):
    return lambda session, budget, dice: deterministic_chain(tokens)


def drafted(drafters, source=""):
    return Switch(drafters)(SESSION, Budget.of(source, 3), NO_DICE)


def test_the_drafter_that_the_budget_names_drafts():
    both = {"a": proposing(1), "b": proposing(2)}
    assert drafted(both, "a").tokens == (1,)
    assert drafted(both, "b").tokens == (2,)


def test_without_a_name_the_first_drafter_drafts():
    assert drafted({"a": proposing(1), "b": proposing(2)}).tokens == (1,)


def test_an_empty_draft_falls_through_to_the_others_in_order():
    assert drafted({"a": proposing(1), "b": proposing(2), "c": proposing()}, "c").tokens == (1,)
    assert drafted({"a": proposing(), "b": proposing(2)}, "a").tokens == (2,)
    assert drafted({"a": proposing(), "b": proposing()}, "a") == Draft()


def test_every_source_gets_its_own_budget_and_an_unnamed_drafter_the_last_ones():
    calls = []

    def logged(name, *tokens):
        return lambda session, budget, dice: calls.append((name, budget)) or deterministic_chain(tokens)

    drafters = {"a": logged("a"), "b": logged("b", 1)}
    for budget, other in ((Budget.of("a", 9).then(Budget.of("b", 2, 3)), Budget(2, 3)), (Budget.of("a", 9), Budget(9))):
        calls.clear()
        Switch(drafters)(SESSION, budget, NO_DICE)
        assert calls == [("a", Budget(9)), ("b", other)]


def test_a_drafter_after_a_nonempty_draft_is_not_called():
    calls = []

    def logged(session, budget, dice):
        calls.append("b")
        return Draft()

    drafted({"a": proposing(1), "b": logged}, "a")
    assert calls == []


def test_an_unknown_drafter_is_refused():
    with pytest.raises(Refusal, match="names the drafter 'x'"):
        drafted({"a": proposing(1)}, "x")
