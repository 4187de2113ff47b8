import random

import pytest

from specdec_lib.cards import Kit
from specdec_lib.cost.row_costs import RowCosts
from specdec_lib.index.static_store import StaticStore
from specdec_lib.index.store_build import build_store
from specdec_lib.index.suffix_automaton import SuffixAutomaton
from specdec_lib.index.trees import copy_probability, corpus_probability
from specdec_lib.memory.answers import AnswerStore, earlier_answers
from specdec_lib.types import NO_DICE, ROOT, Budget, Refusal, Session
from specdec_lib.what.suffix_decoding import CARD, SuffixDecoding

TEXT = (1, 2, 3, 4, 7, 1, 2, 3, 8, 1, 2, 3)        # after (1, 2, 3) came 4 and 8
WIDE = Budget(4, 8, 20)


def session_of(tokens, end=()):
    return Session(tuple(tokens), len(tokens), 50, frozenset(end))


def draft(tokens, budget=WIDE, end=(), answers=None, **choice):
    return SuffixDecoding(SuffixAutomaton(), answers, **choice)(session_of(tokens, end), budget, NO_DICE)


@pytest.fixture
def corpus(tmp_path):
    def built(*documents):
        build_store(tmp_path / "store", documents)
        return StaticStore(tmp_path / "store")
    return built


def store(*answers):
    kept = AnswerStore()
    for answer in answers:
        kept.add(answer)
    return kept


def test_both_continuations_are_drafted_as_a_tree():
    found = draft(TEXT, Budget(2, 8, 4))
    assert {(found.tokens[node], found.parents[node]) for node in found.children[ROOT]} == {(4, ROOT), (8, ROOT)}
    assert {found.tokens[node] for node in range(len(found)) if found.parents[node] != ROOT} == {7, 1}
    assert found.q == ()
    assert found.source == ("suffix-decoding",) * 4


def test_with_a_width_of_one_the_likeliest_chain_is_drafted():
    found = draft((*TEXT[:9], 9, 1, 2, 3, 8, 1, 2, 3), Budget(3, 1))      # 8 twice, 4 once
    assert found.tokens == (8, 1, 2) or found.tokens == (8, 9, 1)
    assert found.parents == (ROOT, 0, 1)


def test_the_confidence_is_the_chance_given_the_parent():
    found = draft((5, 6, 7, 8, 5, 6), Budget(2))
    assert found.tokens == (7, 8)
    assert found.confidence == pytest.approx((copy_probability(2), copy_probability(3)))


def test_the_authors_bound_grows_with_the_match():
    tokens = (1, 2, 3, 4, 5, 6, 7, 1, 2, 3)
    assert len(draft(tokens, Budget(9), rule="shares", factor=1.0)) == 3
    assert len(draft(tokens, Budget(9), rule="shares")) == 9


def test_a_draft_that_is_worth_too_little_is_left_to_the_next_drafter():
    expected = sum(SuffixDecoding(SuffixAutomaton()).best(session_of(TEXT), WIDE).chances)
    assert draft(TEXT, worth=expected - 0.01).tokens
    assert not draft(TEXT, worth=expected + 0.01).tokens


def test_no_more_nodes_than_are_worth_their_rows_and_none_below_the_least_chance():
    assert len(draft(TEXT, rows=RowCosts((0.0, 0.1, 0.2, 2.0)))) == 2
    assert not draft(TEXT, least=0.9).tokens


def test_nothing_is_drafted_without_a_repeat_or_without_a_budget_or_after_an_end_token():
    assert not draft((1, 2, 3)).tokens
    assert not draft(TEXT, Budget()).tokens
    assert draft((5, 6, 7, 8, 5, 6), Budget(4), end={7}).tokens == (7,)


def test_an_earlier_answer_is_continued_where_it_is_worth_more():
    answers = store((1, 2, 3, 9, 9, 6), (1, 2, 3, 9, 9, 6))
    assert draft((7, 1, 2, 3), Budget(3), answers=answers).tokens == (9, 9, 6)
    assert draft(TEXT, Budget(1, 1), answers=store((3, 5))).tokens in ((4,), (8,))        # one token matches there


def test_on_a_tie_the_sessions_own_text_is_continued():
    assert draft((1, 2, 5, 1, 2), Budget(1), answers=store((1, 2, 6))).tokens == (5,)


def test_a_corpus_is_continued_as_a_tree_by_how_often_each_token_followed(corpus):
    found = draft((7, 1, 2), Budget(2, 8, 4), corpus=corpus((1, 2, 3, 5), (1, 2, 3, 6), (1, 2, 4, 9)))
    assert {(found.tokens[node], found.parents[node]) for node in range(2)} == {(3, ROOT), (4, ROOT)}
    assert {found.tokens[node] for node in found.children[found.tokens.index(3)]} == {5, 6}
    chances = dict(zip(found.tokens, found.confidence, strict=True))
    doubt = 1 / corpus_probability(2) - 1
    assert (chances[3], chances[4]) == pytest.approx((2 / (3 + doubt), 1 / (3 + doubt)))


def test_the_end_of_a_document_is_not_drafted(corpus):
    assert draft((7, 1, 2), Budget(3), corpus=corpus((1, 2, 3), (5, 6))).tokens == (3,)


def test_between_the_own_text_and_a_corpus_the_gain_decides(corpus):
    assert draft((1, 2, 5, 1, 2), Budget(1), corpus=corpus((1, 2, 6))).tokens == (5,)
    assert draft((2, 5, 1, 2), Budget(1), corpus=corpus(*[(1, 2, 6)] * 20)).tokens == (6,)
    assert draft((1, 2), Budget(1), answers=store((1, 2, 7)), corpus=corpus((1, 2, 6))).tokens == (7,)
    assert draft((3, 4, 5), Budget(3), rule="shares", corpus=corpus((4, 5, 6, 7, 8))).tokens == (6, 7, 8)


def test_what_a_corpus_does_not_know_is_left_to_the_text(corpus):
    assert draft((8, 9, 8, 9), Budget(1), corpus=corpus((1, 2, 3))).tokens == draft((8, 9, 8, 9), Budget(1)).tokens
    assert not draft((8, 9), corpus=corpus((1, 2, 3))).tokens


def test_the_draft_depends_on_the_session_alone():
    rng, shared = random.Random(0), SuffixDecoding(SuffixAutomaton())
    base = tuple(rng.randrange(3) for _ in range(30))
    for _ in range(50):
        session = session_of(base[:rng.randrange(1, 31)] + (rng.randrange(3),))
        assert shared(session, WIDE, NO_DICE) == SuffixDecoding(SuffixAutomaton())(session, WIDE, NO_DICE)


def test_the_kit_gives_the_price_of_a_node_and_the_memory():
    kit = Kit(None, price=0.1)
    part = CARD.make(kit, remember=100)
    assert part.least == pytest.approx(0.2)                             # two tokens are generated per forward
    assert part.answers is earlier_answers(kit, 100)
    assert CARD.make(Kit(None), price=0.0).least == 0.0
    assert CARD.make(Kit(None), least=0.3).least == 0.3
    assert CARD.make(Kit(None)).answers is None


def test_the_kit_gives_the_corpus(corpus, tmp_path):
    corpus((1, 2, 3))
    assert CARD.make(Kit(None, store=str(tmp_path / "store"))).corpus.size == 4
    assert CARD.make(Kit(None)).corpus is None


@pytest.mark.parametrize("choice", [{"rule": "counts"}, {"least": 1.5}, {"factor": 0.0}, {"worth": -1.0},
                                    {"price": 2.0}, {"remember": 1}], ids=str)
def test_an_impossible_parameter_is_refused(choice):
    with pytest.raises(Refusal, match="rule|least|factor|worth|price|earlier answers"):
        CARD.make(Kit(None), **choice)
