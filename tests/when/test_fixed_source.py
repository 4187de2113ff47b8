import pytest

from specdec_lib.loop import begin
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, Budget, Draft, Refusal
from specdec_lib.what.switch import Switch
from specdec_lib.when.fixed_source import CARD, FixedSource
from tests.worlds import kit

SESSION = begin((1, 2), 20)
DRAFTERS = {"model": lambda *args: deterministic_chain((1,)), "copy": lambda *args: deterministic_chain((2,)),
            "empty": lambda *args: Draft()}


def drafted(source):
    return Switch(DRAFTERS)(SESSION, FixedSource(Budget.of(source, 3))(SESSION, NO_DICE), NO_DICE).tokens


def test_the_named_drafter_drafts_every_round():
    assert drafted("copy") == (2,)
    assert drafted("model") == (1,)


def test_after_an_empty_draft_the_switch_uses_the_next_drafter():
    assert drafted("empty") == (1,)


def test_its_budget_comes_from_the_kit_or_from_the_parameters():
    assert CARD.make(kit(nodes=5), "eagle2").budget == Budget.of("eagle2", 5, 8, 5)
    assert CARD.make(kit(nodes=5), depth=2, width=3, nodes=4).budget == Budget(2, 3, 4)


@pytest.mark.parametrize("wrong", [{"depth": -1}, {"width": 0}, {"nodes": -1}])
def test_an_impossible_budget_is_refused(wrong):
    with pytest.raises(Refusal):
        CARD.make(kit(), **wrong)
