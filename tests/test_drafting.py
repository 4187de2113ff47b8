"""Growing drafts."""

import pytest

from specdec_lib.dice import Dice
from specdec_lib.drafting import best_length, certain_chain, certain_trie, grow, rates
from specdec_lib.loop import begin
from specdec_lib.types import ROOT, Budget
from tests.worlds import DRAFT, PROMPT, WARM


def ask(session):
    return lambda draft: DRAFT(session.tokens, draft)


def test_a_grown_node_carries_the_law_it_was_drawn_from():
    session = begin(PROMPT, 9, sampling=WARM)
    draft = grow(session, Budget(4), Dice(3), ask(session), "d")
    context = PROMPT
    for node, token in enumerate(draft.tokens):
        assert draft.law(node).chances.tolist() == pytest.approx(DRAFT.logits(context).exp().tolist())
        assert draft.sights[node].chance == pytest.approx(draft.law(node).chance(token))
        context += (token,)
    assert len(draft) == 4 and draft.parents == (ROOT, 0, 1, 2) and draft.source == ("d",) * 4


def test_greedy_nodes_are_certain():
    session = begin(PROMPT, 9)
    draft = grow(session, Budget(3), Dice(3), ask(session))
    assert [draft.law(node) for node in range(3)] == [None] * 3


def test_the_token_at_which_the_rule_fired_stays():
    session = begin(PROMPT, 9, sampling=WARM)
    draft = grow(session, Budget(5, stop=lambda trail: len(trail) == 2), Dice(3), ask(session))
    assert len(draft) == 2


def test_nothing_is_drafted_past_an_end_token():
    session = begin(PROMPT, 9, end=frozenset({0, 1, 2}))
    assert len(grow(session, Budget(5), Dice(3), ask(session))) == 1


def test_a_trie_merges_what_chains_share_and_stops_at_its_nodes():
    draft = certain_trie([(1, 2, 3), (1, 5), (7,)], nodes=4)
    assert draft.tokens == (1, 2, 3, 5) and draft.parents == (ROOT, 0, 1, 0)


def test_an_empty_chain_is_the_empty_draft():
    assert len(certain_chain(())) == 0 and certain_chain(()).depth == 0


def test_tokens_per_second_are_counted_along_the_chain():
    assert list(rates((.5, .4), lambda n: 1 + n)) == pytest.approx([1, 1.5 / 2, 1.7 / 3])
    assert list(rates((), lambda n: 2.0)) == [.5]


def test_the_best_length_looks_behind_a_poor_depth_and_takes_the_shorter_of_equals():
    def stairs(n):
        return (1.0, 2.0, 2.0, 2.0)[n]

    assert best_length((.9, .9, .9), stairs) == 3 and best_length((.2, .2, .2), stairs) == 0
    assert best_length((1, 0, 0), lambda n: 1.0) == 1 and best_length((0, 0, 0), stairs, 2) == 2
