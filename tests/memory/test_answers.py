"""A store of earlier answers agrees with brute force, never matches across answers, and grows between decodes only."""

import random
from dataclasses import replace

import pytest

from specdec_lib.cards import Kit
from specdec_lib.index.static_store import CorpusMatch, StaticStore
from specdec_lib.index.store_build import build_store
from specdec_lib.memory.answers import AnswerStore, PromptAndAnswers, earlier_answers, with_answers
from specdec_lib.types import Refusal, Session
from tests.index.test_static_store import by_brute_force, corpus


def filled(*answers, **choice) -> AnswerStore:
    store = AnswerStore(**choice)
    for answer in answers:
        store.add(answer)
    return store


@pytest.mark.parametrize("letters", [1, 2, 5])
def test_matches_agree_with_brute_force_while_it_grows(letters):
    rng, store, answers = random.Random(letters), AnswerStore(), []
    for answer in corpus(rng, 12, letters):
        answers.append(answer)
        store.add(answer)
        for _ in range(20):
            tokens = tuple(rng.randrange(letters + 1) for _ in range(rng.randrange(1, 30)))
            assert store.find(tokens)[:3] == by_brute_force(answers, tokens)[:3]


def test_a_match_is_found_up_to_sixty_four_tokens():
    store = filled(range(100), [9, *range(30, 100)])
    assert store.find(tuple(range(90))) == CorpusMatch(64, 90, 90)
    assert store.find(tuple(range(20, 64))).length == 44


def test_a_continuation_stops_at_the_end_of_its_answer():
    store = filled([1, 2, 3, 4], [5, 6])
    assert store.following(store.find((1, 2)).first, 8) == (3, 4)
    assert store.following(store.find((1,)).first, 2) == (2, 3)
    assert store.following(store.find((6,)).first, 8) == ()
    assert store.find((4, 5)) == CorpusMatch(1, 6, 6), "a match does not run from one answer into the next"


def test_an_empty_store_and_an_unknown_token_find_nothing():
    assert AnswerStore().find((1, 2)) == filled([1, 2]).find((1, 9)) == filled([1]).find(()) == CorpusMatch()
    assert filled([], ()).size == 0


def test_a_finished_decode_adds_what_it_emitted_and_its_prompt_where_asked():
    session = Session((9, 1, 2, 3), 1, 0)
    own, with_prompt = AnswerStore(), AnswerStore(prompts=True)
    own.finish(session)
    with_prompt.finish(session)
    assert own.find((1, 2)).length == 2
    assert own.following(2, 8) == (3,)
    assert own.find((9,)) == CorpusMatch()
    assert with_prompt.find((9, 1)).length == 2


def test_beyond_its_limit_it_keeps_the_newest_half():
    store = filled(range(6), range(10, 14), most=10)
    assert store.size == 5
    assert store.find((4, 5)) == CorpusMatch()
    assert store.find((12,)).length == 1
    assert filled(range(20), most=10).size == 5
    assert filled(range(9), most=10).size == 10


def test_the_tokens_read_in_stay_within_three_times_those_added():
    store, read = AnswerStore(most=50), 0
    for n in range(100):
        store.add(range(n, n + 9))
        before = store._automaton
        read += store.size if store._automaton is not before else 10
    assert read <= 3 * 1000


def test_a_store_for_less_than_two_tokens_is_refused():
    with pytest.raises(Refusal, match="at least 2"):
        AnswerStore(1)
    assert filled([1], most=2).size == 2


@pytest.fixture
def built(tmp_path):
    build_store(tmp_path / "store", [(1, 2, 3, 4), (7, 7)])
    return StaticStore(tmp_path / "store")


def test_corpus_and_answers_are_searched_as_one_and_the_longer_match_wins(built):
    both = PromptAndAnswers(built, filled([2, 3, 5], [1, 9]))
    assert both.following(both.find((1, 2, 3)).first, 8) == (4,)
    assert both.following(both.find((2, 3)).first, 8) == (5,), "a tie is the answers'"
    assert both.following(both.find((1,)).recent, 8) == (9,)
    first = PromptAndAnswers(built, filled([1, 9]))
    assert first.following(first.find((1,)).first, 8) == (9,), "behind the first token of all answers"
    assert both.following(both.find((7,)).recent, 8) == ()
    assert both.find((8,)) == CorpusMatch()
    assert [both.find(one).other for one in ((1, 2, 3), (2, 3))] == [True, False]
    assert PromptAndAnswers(built, AnswerStore()).find((1, 2)) == built.find((1, 2))


def test_the_store_persists_across_kits_and_grows_once_per_decode():
    kit = Kit(None)
    assert earlier_answers(kit).size == 0
    assert not earlier_answers(kit).prompts, "only answers, unless asked for"
    earlier_answers(kit).finish(Session((1, 2, 3), 0, 0))
    later = replace(kit, indexes={})
    assert earlier_answers(later).size == 4
    assert earlier_answers(later) is earlier_answers(kit)
    assert earlier_answers(replace(kit, indexes={}, memory={})).size == 0


def test_with_0_tokens_no_store_is_made(built):
    kit = Kit(None)
    assert with_answers(kit, built, 0) is built
    assert not kit.memory
    assert isinstance(with_answers(kit, None, 10), AnswerStore)
    assert isinstance(with_answers(kit, built, 10), PromptAndAnswers)
