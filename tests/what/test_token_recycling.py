import pytest
import torch

from specdec_lib.cards import Kit
from specdec_lib.index.successor_table import SuccessorTable
from specdec_lib.scores import RowStats
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft, Refusal, Round, Session, Verdict
from specdec_lib.what.token_recycling import CARD, TokenRecycling

# The target's best tokens: after 6 are 7, 8, 1; after 7 is 9; after 8 is 4; after 9 is 6.
ROUND = Round(Budget(2), Draft((7, 8), (ROOT, ROOT)), RowStats(torch.tensor([[7, 8, 1], [9, 2, 3], [4, 5, 0]]),
                                                               torch.zeros(3, 3)), Verdict((0,), (7, 9)), ())
BACK = Round(Budget(), Draft(), RowStats(torch.tensor([[6, 7, 8]]), torch.zeros(1, 3)), Verdict((), (6,)), ())
WEIGHTS = (.6, .3, .1)


def session_of(*rounds, prompt=(5, 6), end=()):
    session = Session(prompt, len(prompt), 50, frozenset(end))
    for one in rounds:
        session = session.after(one)
    return session


def draft(budget, session=None, weights=WEIGHTS):
    part = TokenRecycling(SuccessorTable(3, text=False), weights)
    return part(session or session_of(ROUND, BACK), budget, NO_DICE)


def test_nodes_join_by_the_product_of_the_weights_of_their_ranks():
    found = draft(Budget(3, 3, 5))
    # 7 (.6), 7 9 (.36), 8 (.3), 7 9 6 (.216), and then of .18, .18 the one found first: 7 2
    assert found.tokens == (7, 9, 8, 6, 2)
    assert found.parents == (ROOT, 0, ROOT, 1, 0)
    assert found.confidence == (.6, .6, .3, .6, .3)


def test_a_smaller_tree_is_the_beginning_of_a_larger_one():
    large = draft(Budget(4, 3, 9))
    for nodes in range(1, 9):
        small = draft(Budget(4, 3, nodes))
        assert (small.tokens, small.parents) == (large.tokens[:nodes], large.parents[:nodes])


def test_width_one_follows_the_first_successors():
    assert draft(Budget(4)).tokens == (7, 9, 6, 7)


def test_depth_and_width_bound_the_tree():
    found = draft(Budget(2, 2, 100))
    assert found.depth == 2
    assert max(map(len, found.children.values())) == 2
    assert len(found) <= 4


def test_nothing_grows_below_an_end_token():
    found = draft(Budget(3, 3, 9), session_of(ROUND, BACK, end={7}))
    assert 7 in found.tokens
    assert found.tokens.index(7) not in found.parents


def test_successors_of_rejected_nodes_are_used():
    found = draft(Budget(20, 3, 40))
    eight = found.tokens.index(8)
    assert [found.tokens[i] for i in found.children[eight]] == [4, 5, 0]


def test_without_history_the_prompts_text_is_used_unless_text_is_false():
    session = session_of(prompt=(6, 4, 2, 6))
    assert CARD.make(Kit(None))(session, Budget(3), NO_DICE).tokens == (4, 2, 6)
    assert CARD.make(Kit(None), text=False)(session, Budget(3), NO_DICE) == Draft()


def test_depth_zero_and_an_unknown_token_give_no_draft():
    assert draft(Budget(0)) == Draft()
    assert draft(Budget(3), session_of(prompt=(5, 3))) == Draft()


def test_nodes_are_deterministic_and_name_their_source():
    found = draft(Budget(2, 2, 3))
    assert found.q == ()
    assert found.source == ("token-recycling",) * 3


@pytest.mark.parametrize("weights", [(), (0.5, 0.0), (1.5,)], ids=str)
def test_weights_outside_0_to_1_are_refused(weights):
    with pytest.raises(Refusal, match="between 0 and 1"):
        CARD.make(Kit(None), weights=weights)
