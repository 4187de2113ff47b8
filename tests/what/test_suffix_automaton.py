import random

import pytest

from specdec_lib.cards import Kit
from specdec_lib.index.matcher import Matcher
from specdec_lib.index.static_store import StaticStore
from specdec_lib.index.store_build import build_store
from specdec_lib.index.trees import copy_probability, corpus_probability
from specdec_lib.types import NO_DICE, Budget, Refusal, Session
from specdec_lib.what.suffix_automaton import CARD, SuffixAutomatonDrafter

TEXT = (1, 2, 3, 4, 7, 2, 3, 8, 1, 2, 3, 4, 9, 1, 2, 3)


def session_of(tokens, end=()):
    return Session(tuple(tokens), len(tokens), 50, frozenset(end))


def draft(tokens, budget=Budget(3), end=(), store=None, **choice):
    return SuffixAutomatonDrafter(Matcher(store), **choice)(session_of(tokens, end), budget, NO_DICE)


def test_the_longest_suffix_is_copied_not_the_latest_shorter_one():
    assert draft((1, 2, 3, 4, 9, 3, 5, 1, 2, 3)).tokens == (4, 9, 3)


def test_first_and_recent_copy_from_different_positions():
    assert draft(TEXT, Budget(2)).tokens == (4, 9)
    assert draft(TEXT, Budget(2), mode="first").tokens == (4, 7)


def test_match_gives_the_match_length():
    assert SuffixAutomatonDrafter(Matcher()).match(session_of(TEXT)).length == 3


def test_a_match_below_the_threshold_is_not_copied():
    assert draft(TEXT, threshold=3).tokens
    assert not draft(TEXT, threshold=4).tokens
    assert not draft((1, 2, 3)).tokens


def test_a_loop_is_continued_up_to_the_budget():
    assert draft((5, 1, 2, 1, 2), Budget(6)).tokens == (1, 2, 1, 2, 1, 2)


def test_a_corpus_is_copied_where_its_match_is_worth_more(tmp_path):
    build_store(tmp_path / "store", [(20, 21, 22, 23, 24, 25, 26, 27, 28)])
    store = StaticStore(tmp_path / "store")
    seven, five = (26, 1, *range(20, 27)), (26, 1, *range(22, 27))      # and one in the session itself
    assert draft(seven, store=store).tokens == (27, 28)                 # 7 - 5 > 1
    assert draft(seven, store=store).confidence == (corpus_probability(7), corpus_probability(8))
    assert draft(five, store=store).tokens == (1, 22, 23)               # 5 - 5 < 1
    assert draft((3, 26), store=store).tokens == (27, 28)


def test_the_chain_ends_with_the_first_end_token_and_with_the_budget():
    assert draft(TEXT, Budget(5), end={9}).tokens == (4, 9)
    assert len(draft(TEXT, Budget(5, nodes=2))) == 2
    assert len(draft(TEXT, Budget(0))) == 0


def test_nodes_are_deterministic_and_confidence_grows_with_the_match_length():
    found = draft(TEXT, Budget(3))
    assert found.q == ()
    assert found.source == ("suffix-automaton",) * 3
    assert found.confidence == (copy_probability(3), copy_probability(4), copy_probability(5)) == (3 / 4.5, 4 / 5.5,
                                                                                                   5 / 6.5)
    assert copy_probability(1) < copy_probability(2) < copy_probability(40) < 1


def test_the_draft_depends_on_the_session_alone():
    rng, shared = random.Random(0), SuffixAutomatonDrafter(Matcher())
    base = tuple(rng.randrange(3) for _ in range(30))
    for _ in range(50):
        session = session_of(base[:rng.randrange(1, 31)] + (rng.randrange(3),))
        assert shared(session, Budget(4), NO_DICE) == SuffixAutomatonDrafter(Matcher())(session, Budget(4), NO_DICE)


@pytest.mark.parametrize("choice", [{"mode": "last"}, {"threshold": 0}], ids=str)
def test_an_impossible_parameter_is_refused(choice):
    with pytest.raises(Refusal, match="mode|threshold"):
        CARD.make(Kit(None), **choice)
