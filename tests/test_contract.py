"""The contract of every part, tested on every card in the catalogue."""

import random

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.loop import begin, step
from specdec_lib.types import ROOT, Budget, Method
from specdec_lib.when.fixed import Fixed
from tests.worlds import TARGET, WARM, kit, kit_for, network_kit

ROOMS = catalog.parts()
WHATS = [name for name, card in ROOMS["what"].items()
         if not (catalog.missing(card, kit()) and catalog.missing(card, network_kit()))]
WHENS = [name for name, card in ROOMS["when"].items()
         if not (catalog.missing(card, kit()) and catalog.missing(card, network_kit()))]
BUDGETS = [Budget(1), Budget(3), Budget(3, 2, 4), Budget(6, 3, 5)]


def sessions(seed: int, count: int = 12):
    """Sessions of one decode in the table world, with their histories."""
    dice = random.Random(seed)
    prompt = tuple(dice.randrange(3) for _ in range(12))
    now, out = begin(prompt, 60, sampling=WARM), []
    world = kit()
    method = Method(Fixed(3, 2, 4), world.part("draft-model"), world.part("rejection"))
    for i in range(count):
        now = step(now, TARGET, method, Dice(seed + i))
        out.append(now)
    return out


@pytest.mark.parametrize("name", WHATS)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_draft_is_a_tree_within_its_budget(name, budget):
    part = kit_for(name).part(name)
    for session in sessions(1):
        draft = part(session, budget, Dice(1))
        assert len(draft) <= budget.size
        assert draft.depth <= budget.depth
        assert all(ROOT <= parent < node for node, parent in enumerate(draft.parents))
        assert len(set(zip(draft.parents, draft.tokens, strict=True))) == len(draft), "siblings differ"
        for values in (draft.q, draft.stats, draft.source, draft.confidence):
            assert len(values) in (0, len(draft))


@pytest.mark.parametrize("name", WHATS)
def test_two_calls_of_a_drafter_give_the_same_draft(name):
    part = kit_for(name).part(name)
    for session in sessions(2):
        one, other = part(session, Budget(3), Dice(5)), part(session, Budget(3), Dice(5))
        assert one.tokens == other.tokens
        assert one.parents == other.parents


@pytest.mark.parametrize("name", WHATS)
def test_a_draft_depends_on_the_session_alone_in_any_order_of_calls(name):
    there = sessions(3)
    used, order = kit_for(name).part(name), there + there[::-1] + sessions(4)
    for session in order:
        assert used(session, Budget(4), Dice(5)).tokens == kit_for(name).part(name)(session, Budget(4), Dice(5)).tokens


@pytest.mark.parametrize("name", WHENS)
def test_a_budget_depends_on_the_session_alone(name):
    part = kit_for(name).part(name)
    there = sessions(5)
    forth = [part(session, Dice(1)) for session in there]
    assert [part(session, Dice(1)) for session in there[::-1]][::-1] == forth
    assert [kit_for(name).part(name)(session, Dice(1)) for session in there] == forth


@pytest.mark.parametrize("name", WHATS)
def test_no_node_follows_an_end_token(name):
    part = kit_for(name).part(name)
    for session in sessions(6):
        ended = begin(session.tokens, 20, end=frozenset({1}), sampling=WARM)
        draft = part(ended, Budget(5, 2, 6), Dice(3))
        assert not any(parent != ROOT and draft.tokens[parent] == 1 for parent in draft.parents)
