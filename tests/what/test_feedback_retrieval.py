"""Feedback retrieval: candidates and their scores, the shapes of the tree, the corpus, and well-formed drafts."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib.cards import Kit
from specdec_lib.how.match import Match
from specdec_lib.index.store_build import build_store
from specdec_lib.index.trees import copy_probability, corpus_probability
from specdec_lib.loop import begin, step
from specdec_lib.memory.answers import earlier_answers
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft, Method, Session
from specdec_lib.what.feedback_retrieval import CARD, NAME, copy_length
from specdec_lib.when.fixed import Fixed
from tests.worlds import Scripted

# After 1 2 3 came first 10 11 12 13, then 20 21 22 23: the earliest copy is wrong, the newest right.
WRONG, RIGHT = (10, 11, 12, 13), (20, 21, 22, 23)
PROMPT = (1, 2, 3, *WRONG, 1, 2, 3, *RIGHT, 9, 1, 2, 3)
SCRIPT = (*RIGHT, 9, 1, 2, 3, *RIGHT, 9, 8)
BUDGET = Budget(8, 8, 8)


def session_of(tokens, end=()):
    return Session(tuple(tokens), len(tokens), 50, frozenset(end))


SCORED = {"shape": "extend", "least": 0.5, "query": 3}                  # chains by their scores


def made(kit=None, **choice):
    return CARD.make(kit or Kit(None), **SCORED | choice)


def draft(tokens=PROMPT, budget=BUDGET, end=(), **choice):
    return made(**choice)(session_of(tokens, end), budget, NO_DICE)


def chains(found):
    """The tokens of each noted chain, in order."""
    return [tuple(found.tokens[node] for node in nodes) for _, _, nodes in found.notes.get(NAME, ())]


def decoded(rounds, part=None, prompt=PROMPT, script=SCRIPT, budget=BUDGET):
    """The sessions of a decode after each round."""
    part, target = part or made(), Scripted(prompt, script)
    now, out = begin(prompt, len(script)), []
    for _ in range(rounds):
        now = step(now, target, Method(Fixed(budget.depth, budget.width, budget.nodes), part, Match()), NO_DICE)
        out.append(now)
    return out


def scores(session, **choice):
    return {one.start: one.score for one in made(**choice).candidates(session)}


def test_several_positions_are_offered_newest_first_and_share_nodes():
    assert chains(draft()) == [RIGHT, WRONG]
    found = draft((1, 2, 3, 7, 10, 11, 1, 2, 3, 7, 12, 13, 0, 1, 2, 3), Budget(4, 8, 8))
    assert chains(found) == [(7, 12, 13, 0), (7, 10, 11, 1)]
    assert found.parents == (ROOT, 0, 1, 2, 0, 4, 5)


def test_after_one_round_the_accepted_position_has_the_higher_score():
    after, part = decoded(1)[0], made()
    assert after.rounds[0].verdict.path == (0, 1, 2, 3)
    part.candidates(after)
    right, wrong = (key for key, _, _ in after.rounds[0].draft.notes[NAME])
    assert (part.scores.score(right), part.scores.score(wrong)) == pytest.approx((.65, .35))


def test_a_rejected_distance_is_not_offered_again_unless_least_is_0():
    # At distance 4 is 11, at distance 8 is 10; the text goes on with 10, and both distances match once more.
    prompt, script = (1, 2, 3, 10, 1, 2, 3, 11, 1, 2, 3), (10, 1, 2, 3, 11, 1, 2, 3, 9)

    def offered(**choice):
        steps = decoded(2, made(most=2, **choice), prompt, script, Budget(3, 8, 6))
        return [[key for key, _, _ in one.rounds[-1].draft.notes[NAME]] for one in steps]

    assert offered() == [[4, 8], [8]]
    assert offered(least=0) == [[4, 8], [8, 4]]


def test_a_diagonal_keeps_its_score_and_a_new_position_starts_at_the_initial_score():
    # A copy at distance 8 that goes on: the position moves with the text, the distance is constant.
    prompt = (*range(1, 9), 1, 2, 3)
    after = decoded(1, prompt=prompt, script=(4, 5, 6, 7, 8, 9), budget=Budget(4, 8, 4))[0]
    assert after.tokens[-5:] == (4, 5, 6, 7, 8)
    assert after.rounds[0].verdict.path == (0, 1, 2, 3)
    assert scores(after) == pytest.approx({8: .65})
    after = decoded(1, made(key="position"), prompt, (4, 5, 6, 7, 8, 9), Budget(4, 8, 4))[0]
    assert scores(after, key="position") == {8: .5}


def test_a_revisited_position_keeps_its_score_and_its_diagonal_is_new():
    prompt, script = (3, 4, 5, 6, 7, 3), (9, 3, 8)
    for key, known in (("position", .35), ("diagonal", .5)):
        after = decoded(2, made(key=key, query=1), prompt, script)[-1]
        assert after.tokens[-2:] == (9, 3)
        assert scores(after, key=key, query=1)[1] == pytest.approx(known)


def test_the_draft_depends_on_the_session_alone():
    part, steps = made(), decoded(3)
    want = [made()(one, BUDGET, NO_DICE) for one in steps]
    assert [part(one, BUDGET, NO_DICE) for one in (*steps, *steps)] == want * 2
    assert [part(one, BUDGET, NO_DICE) for one in steps[::-1]] == want[::-1]
    assert want[0] != made()(replace(steps[0], rounds=()), BUDGET, NO_DICE), "the draft depends on the history"


def test_the_budgets_nodes_are_not_exceeded_and_the_last_chain_is_cut():
    assert [len(draft(budget=Budget(8, 8, n))) for n in range(1, 9)] == list(range(1, 9))
    assert chains(draft(budget=Budget(8, 8, 6), shape="leave")) == [RIGHT, WRONG[:2]]


def test_the_noted_length_is_the_offered_part_of_the_chain():
    assert [length for _, length, _ in draft(budget=Budget(8, 8, 6)).notes[NAME]] == [4, 2]


def test_depth_and_width_bound_the_tree():
    assert draft(budget=Budget(2, 8, 8)).depth == 2
    narrow = draft(budget=Budget(8))
    assert len(narrow.children[ROOT]) == 1
    assert narrow.tokens[:4] == RIGHT


def test_a_higher_score_copies_more_tokens():
    assert [copy_length(score, 40) for score in (0, .5, .65, 1)] == [4, 20, 26, 40]
    assert [copy_length(score, 8) for score in (.5, .65, .8, 1)] == [4, 5, 6, 8]
    assert copy_length(.5, 3) == 3
    assert copy_length(0, 40, shortest=1) == 1
    assert len(draft((1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3), shape="leave", start=.75)) == 6


def test_shape_extend_gives_remaining_nodes_to_the_best_chain_and_leave_does_not():
    one_place = (1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3)
    assert draft(one_place).tokens == (4, 5, 6, 7, 8, 9, 1, 2)
    assert draft(one_place).notes[NAME][0][1] == 4
    assert draft(one_place, shape="leave").tokens == (4, 5, 6, 7)


def test_a_continuation_that_equals_a_kept_one_or_its_beginning_is_dropped():
    assert len(draft((1, 2, 3, 4, 5, 6, 7) * 3 + (1, 2, 3)).notes[NAME]) == 1
    ended = (1, 2, 3, 10, 11, 12, 13, 1, 2, 3, 10, 11, 5, 1, 2, 3)
    assert chains(draft(ended, end={5}, shape="leave")) == [(10, 11, 5), (10, 11, 12, 13)]
    assert chains(draft((1, 2, 3, 5, 9, 1, 2, 3), end={5})) == [(5,)]


def test_candidates_rank_by_score_then_match_length_then_recency():
    tokens = (0, 1, 2, 3, 20, 21, 22, 23, 1, 2, 3, 10, 11, 12, 13, 0, 1, 2, 3)
    part = made()
    assert [(one.match, one.start) for one in part.candidates(session_of(tokens))] == [(4, 4), (3, 11)]
    part.scores.score = lambda key: 0.9 if key == len(tokens) - 11 else 0.5
    assert [one.start for one in part.candidates(session_of(tokens))] == [11, 4]


def test_the_default_query_falls_back_by_one_token_and_the_budgets_query_does_not():
    two = (1, 2, 10, 11, 3, 1, 2)
    assert chains(draft(two)) == [(10, 11, 3, 1, 2, 10, 11, 3)]
    assert draft(two, Budget(8, 8, 8, notes={"query": 3})) == Draft()
    one = (2, 10, 11, 3, 1, 2)
    assert draft(one) == Draft()
    assert draft(one, Budget(8, 8, 8, notes={"query": 1})).tokens[0] == 10
    assert draft(one, query=2).tokens[0] == 10


def test_the_current_position_is_never_copied():
    assert draft((1, 2, 3)) == Draft()
    assert draft((5, 5), query=1).tokens == (5,) * 8
    assert all(one.start < len(PROMPT) for one in made().candidates(session_of(PROMPT)))


def likely(tokens=PROMPT, budget=BUDGET, end=(), **choice):
    return draft(tokens, budget, end, **{"shape": "likely", "price": 0.1, "least": 0.0} | choice)


def test_the_most_probable_nodes_of_several_positions_form_a_tree():
    found = likely()
    assert {found.tokens[node] for node in found.children[ROOT]} == {RIGHT[0], WRONG[0]}
    assert chains(found) == [RIGHT, WRONG]
    assert len(found.confidence) == 8
    assert len(likely(price=0.2)) < 8
    one = likely(kept=1)
    assert one.tokens == (*RIGHT, 9, 1, 2, 3)[:len(one)]
    assert one.parents == tuple(range(ROOT, len(one) - 1))


def test_with_kept_1_the_longest_match_is_used_and_the_session_before_the_corpus(tmp_path):
    text = (9, 1, 2, 3, 10, 11, 0, 7, 2, 3, 20, 21, 0, 9, 1, 2, 3)               # 3 match far back, 2 nearby
    assert likely(text, kept=1, query=2).tokens[0] == 10
    build_store(tmp_path / "store", [tuple(range(40, 80)), (9, 1, 2, 3, 30, 31)])       # as long a match, in the corpus
    part = made(Kit(None, store=str(tmp_path / "store")), shape="likely", price=0.1, least=0.0, kept=1, query=2)
    assert part(session_of(text), BUDGET, NO_DICE).tokens[0] == 10


def test_a_longer_match_gives_a_longer_copy():
    long, short = (1, 2, 3, 4, 5, 6, 7, 8), (7, 8)
    after = tuple(range(20, 36))
    reach = {n: len(likely((*match, *after, 0, *match), Budget(16, 8, 16), price=0.2))
             for n, match in ((8, long), (2, short))}
    assert reach[8] > 2 * reach[2] > 0


def test_confidence_rises_at_an_accepted_position_and_falls_at_a_rejected_one():
    part = made(shape="likely", price=0.1, least=0.0)
    later = replace(decoded(1, part)[0], tokens=PROMPT, prompt=len(PROMPT))     # the same text, one round later
    before, after = (dict(zip(found.tokens, found.confidence, strict=True))
                     for found in (likely(), part(later, BUDGET, NO_DICE)))
    assert before[RIGHT[0]] == before[WRONG[0]]
    assert after[RIGHT[0]] > before[RIGHT[0]]
    assert after.get(WRONG[0], 0.0) < before[WRONG[0]]


def test_the_price_of_a_node_comes_from_the_kit():
    assert made(Kit(None, price=0.04)).price == pytest.approx(3 * 0.04)
    assert made(Kit(None, price=0.04), price=0.5).price == 0.5


def test_the_draft_is_empty_when_no_candidate_remains():
    assert draft(start=.4) == Draft()
    assert draft(budget=Budget()) == Draft()
    assert made(start=.4).candidates(session_of(PROMPT)), "there were candidates"


def test_nodes_are_deterministic_with_the_score_of_their_chain_as_confidence():
    found = draft()
    assert found.q == ()
    assert found.source == (NAME,) * 8
    assert found.confidence == (.5,) * 8
    after = decoded(2, prompt=(4, 1, 2, 3, 10, 1, 2, 3, 20, 1, 2, 3), script=(20, 1, 2, 3, 20, 1, 2, 3, 20, 1))[-1]
    assert after.rounds[1].draft.confidence[0] == pytest.approx(.65)


def test_corpus_candidates_come_last_and_are_scored_by_corpus_position(tmp_path):
    build_store(tmp_path / "store", [(1, 2, 3, 24, 25, 26, 27, 28)])
    part = made(Kit(None, store=str(tmp_path / "store")))
    assert chains(part(session_of(PROMPT), Budget(12, 8, 12), NO_DICE)) == [RIGHT + (9, 1), WRONG + (1, 2)]
    alone = part(session_of((7, 1, 2, 3)), BUDGET, NO_DICE)
    assert alone.tokens == (24, 25, 26, 27, 28)
    assert [key for key, _, _ in alone.notes[NAME]] == [-3]
    both = [one.key < 0 for one in part.candidates(session_of(PROMPT))]
    assert both == [False, False, True]
    build_store(tmp_path / "twice", [(1, 2, 3, 24), (1, 2, 3, 25)])
    part = made(Kit(None, store=str(tmp_path / "twice")))
    assert [one.start for one in part.candidates(session_of((7, 1, 2, 3)))] == [8, 3], "the most recent one first"


def test_with_remember_earlier_answers_are_searched_like_a_corpus():
    kit = Kit(None)
    earlier_answers(kit, 50).add((1, 2, 3, 24, 25, 26, 27, 28))
    alone = made(kit, remember=50)(session_of((7, 1, 2, 3)), BUDGET, NO_DICE)
    assert alone.tokens == (24, 25, 26, 27, 28)
    assert [key for key, _, _ in alone.notes[NAME]] == [-3]
    assert made(kit)(session_of((7, 1, 2, 3)), BUDGET, NO_DICE) == Draft()


def test_a_copy_from_a_corpus_of_others_is_less_sure_than_one_from_an_own_answer(tmp_path):
    build_store(tmp_path / "store", [(1, 2, 3, 24, 25, 26, 27, 28)])
    kit, session = Kit(None, store=str(tmp_path / "store")), session_of((7, 1, 2, 3))
    shape = {"shape": "likely", "price": 0.0, "least": 0.0}
    assert made(kit, **shape)(session, BUDGET, NO_DICE).confidence[0] == pytest.approx(corpus_probability(3))
    assert made(kit, **(shape | {"least": 0.3}))(session, BUDGET, NO_DICE) == Draft(), "3 / 11 is below"
    earlier_answers(kit, 50).add((1, 2, 3, 34, 35))
    own = made(kit, remember=50, **shape)(session, BUDGET, NO_DICE)
    assert (own.tokens[0], own.confidence[0]) == (34, pytest.approx(copy_probability(3)))


TEXTS = st.integers(2, 4).flatmap(lambda symbols: st.lists(st.integers(0, symbols - 1), min_size=2, max_size=40))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(TEXTS, st.builds(Budget, st.integers(0, 6), st.integers(1, 3), st.integers(0, 9)),
       st.sampled_from(["likely", "extend", "leave"]), st.sets(st.integers(0, 3), max_size=1))
def test_every_draft_is_a_well_formed_tree_within_the_budget(tokens, budget, shape, end):
    found = draft(tokens, budget, end, shape=shape, least=0.0, price=0.01, query=1)
    assert len(found) <= budget.size
    assert found.depth <= budget.depth
    assert all(ROOT <= parent < node for node, parent in enumerate(found.parents)), "parents come before children"
    assert len(set(zip(found.parents, found.tokens, strict=True))) == len(found), "siblings differ"
    assert all(len(children) <= budget.width for children in found.children.values())
    assert not any(parent != ROOT and found.tokens[parent] in end for parent in found.parents)
    assert len(found.source) == len(found.confidence) == len(found)


@pytest.mark.parametrize("choice", [{"key": "token"}, {"least": 2}, {"query": 0}, {"longest": 0}, {"shortest": 0},
                                    {"most": 0}, {"shape": "use"}, {"kept": 0}, {"price": 2}, {"rate": 0}], ids=str)
def test_an_impossible_parameter_is_refused(choice):
    with pytest.raises(ValueError, match="got"):
        made(**choice)
