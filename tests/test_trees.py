"""Draft trees: grown, merged, and walked by rules that share how paths are found and chosen."""

import math
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.dice import Dice
from specdec_lib.loop import begin
from specdec_lib.scores import Scores
from specdec_lib.trees import (
    deterministic_chain,
    deterministic_tree,
    first_nodes,
    grow,
    grow_chains,
    likeliest,
    longest_path,
    merged,
    offered,
    passing_paths,
    path_logprob,
    readable,
    wide_enough,
)
from specdec_lib.types import ROOT, Budget, Draft, Refusal, Verdict
from tests.worlds import DRAFT, PROMPT, WARM

TREE = Draft((5, 6, 7, 8, 9), (ROOT, ROOT, 0, 1, 2))          # 5-7-9 and 6-8


def scores(*rows) -> Scores:
    """Row 0 stands after the context, row i + 1 after node i; each gives chances to tokens 5 to 9."""
    logits = torch.full((len(rows), 10), -math.inf)
    logits[:, 5:] = torch.tensor(rows).log() + 3              # raw logits know no scale
    return Scores(logits)


def test_a_path_goes_on_below_a_node_that_passes_and_nowhere_else():
    found = dict(passing_paths(TREE, 0, lambda above, node: None if TREE.tokens[node] == 7 else above + 1))
    assert found == {(): 0, (0,): 1, (1,): 1, (1, 3): 2}


def test_a_test_may_carry_what_it_has_seen_along_its_own_path():
    found = dict(passing_paths(TREE, (), lambda above, node: (*above, TREE.tokens[node])))
    assert found[0, 2, 4] == (5, 7, 9)
    assert found[1, 3] == (6, 8)


def test_a_node_is_asked_once_and_only_if_all_above_it_passed():
    asked = []
    list(passing_paths(TREE, 0, lambda above, node: asked.append(node) if node == 0 else asked.append(node) or above))
    assert sorted(asked) == [0, 1, 3]


def test_nothing_drafted_leaves_the_empty_path():
    assert list(passing_paths(Draft(), 1.5, lambda above, node: above)) == [((), 1.5)]


def test_the_longest_path_is_taken_and_of_equals_the_likelier_then_the_first():
    even = scores(*[(.2,) * 5] * 6)
    assert longest_path(TREE, even, [(), (1,), (0, 2), (0,)]) == (0, 2)
    assert longest_path(TREE, scores((.1, .6, .1, .1, .1), *[(.2,) * 5] * 5), [(), (0,), (1,)]) == (1,)
    assert longest_path(TREE, even, [(), (1,), (0,)]) == (1,)


def test_the_likelihood_of_a_path_is_that_of_its_tokens_each_in_the_row_before_it():
    some = scores((.4, .3, .1, .1, .1), (.1, .1, .6, .1, .1), (.2,) * 5, (.1, .1, .1, .1, .6), *[(.2,) * 5] * 2)
    assert path_logprob(TREE, some, (0, 2, 4)) == pytest.approx(math.log(.4 * .6 * .6))
    assert path_logprob(TREE, some, ()) == 0


def ask(session):
    return lambda draft: DRAFT(session.tokens, draft)


def test_a_grown_node_carries_the_law_it_was_drawn_from():
    session = begin(PROMPT, 9, sampling=WARM)
    draft = grow(session, Budget(4), Dice(3), ask(session), "d")
    context = PROMPT
    for node, token in enumerate(draft.tokens):
        assert draft.distribution(node).probs.tolist() == pytest.approx(DRAFT.logits(context).exp().tolist())
        assert draft.stats[node].prob == pytest.approx(draft.distribution(node).probability(token))
        context += (token,)
    assert len(draft) == 4
    assert draft.parents == (ROOT, 0, 1, 2)
    assert draft.source == ("d",) * 4


def test_greedy_nodes_are_certain():
    session = begin(PROMPT, 9)
    draft = grow(session, Budget(3), Dice(3), ask(session))
    assert [draft.distribution(node) for node in range(3)] == [None] * 3


def test_the_token_at_which_the_rule_fired_stays():
    session = begin(PROMPT, 9, sampling=WARM)
    draft = grow(session, Budget(5, stop=lambda trail: len(trail) == 2), Dice(3), ask(session))
    assert len(draft) == 2


def test_nothing_is_drafted_past_an_end_token():
    session = begin(PROMPT, 9, end=frozenset({0, 1, 2}))
    assert len(grow(session, Budget(5), Dice(3), ask(session))) == 1


def test_a_trie_merges_what_chains_share_and_stops_at_its_nodes():
    draft = deterministic_tree([(1, 2, 3), (1, 5), (7,)], nodes=4)
    assert draft.tokens == (1, 2, 3, 5)
    assert draft.parents == (ROOT, 0, 1, 0)


def test_an_empty_chain_is_the_empty_draft():
    assert len(deterministic_chain(())) == 0
    assert deterministic_chain(()).depth == 0


def test_a_trie_of_two_drafts_keeps_the_first_and_adds_what_the_other_has_more():
    session = begin(PROMPT, 20, sampling=WARM)
    first = grow(session, Budget(2), Dice(1), lambda draft: DRAFT(PROMPT, draft))
    other = deterministic_chain((first.tokens[0], (first.tokens[1] + 1) % 3, 2), "b")
    both = merged(first, other)
    assert both.tokens == (*first.tokens, *other.tokens[1:])
    assert both.parents == (ROOT, 0, 0, 2)
    assert both.q == (*first.q, None, None)
    assert both.source == ("", "", "b", "b")
    assert merged(first, first) is first
    assert merged(Draft(), other).tokens == other.tokens


def test_chains_grow_from_every_leaf_with_the_first_one_drawn_as_grow_draws():
    session = begin(PROMPT, 20, sampling=WARM)
    alone = grow(session, Budget(4), Dice(7), lambda draft: DRAFT(PROMPT, draft))
    heads = Draft((alone.tokens[0], 2), (ROOT, ROOT), (None, None), stats=alone.stats[:1] * 2, confidence=(.5, .5))
    grown = grow_chains(session, Budget(4, 2), Dice(7), lambda draft: DRAFT(PROMPT, draft), heads, 4)
    assert [grown.depths.count(depth) for depth in (1, 2, 3, 4)] == [2, 2, 2, 2]
    assert tuple(grown.tokens[node] for node in grown.path(6)) == alone.tokens
    assert len(grow_chains(session, Budget(4), Dice(7), lambda draft: DRAFT(PROMPT, draft), heads, 4)) == 4


def test_the_likeliest_begin_with_the_best_also_among_equals():
    even = scores([.2] * 5)
    assert likeliest(even, 0, 3)[0] == even.best[0]
    assert len(set(likeliest(even, 0, 3))) == 3
    assert likeliest(scores([.1, .2, .4, .25, .05]), 0, 3) == (7, 8, 6)


def test_a_tree_is_as_wide_as_asked_or_as_its_levels_need():
    assert wide_enough(4, 5, 12) == 4
    assert wide_enough(4, 5, 24) == 5
    assert wide_enough(4, 0, 12) == 12
    with pytest.raises(Refusal, match="width from 1"):
        wide_enough(0, 5, 12)


@pytest.mark.parametrize(("path", "tokens", "depths"), [((), (1,), 1), ((0,), (5, 1), 2), ((0,), (5,), 1),
                                                        ((0, 2, 4), (5, 7, 9, 1), 3)])
def test_a_depth_was_offered_where_the_target_chose_another_token_and_not_where_the_loop_cut(path, tokens, depths):
    assert offered(SimpleNamespace(draft=TREE, verdict=Verdict(path, tokens))) == depths


@pytest.mark.parametrize(("context", "depth"), [(None, 6), (9, 6), (8, 6), (7, 5), (2, 0), (1, 0)])
def test_a_draft_is_no_longer_than_the_drafters_context_reads(context, depth):
    """Of three tokens of text and six drafted ones, the last forward reads eight."""
    assert readable(Budget(6), SimpleNamespace(context=context), begin((1, 2, 3), 20)).depth == depth


def test_nothing_is_drafted_after_a_token_that_the_drafter_lacks():
    depths = [readable(Budget(6), SimpleNamespace(context=None, vocab=vocab), begin((1, 7, 3), 20)).depth
              for vocab in (7, 8)]
    assert depths == [0, 6]


@pytest.mark.parametrize("count", range(5))
def test_the_first_nodes_of_a_tree_are_what_keeping_them_gives(count):
    whole = Draft((4, 5, 6), (ROOT, 0, ROOT), q=(None,) * 3, source=("a", "b", "a"), confidence=(.5, .4, .3),
                  notes={"n": 1})
    assert first_nodes(whole, count) == whole.keep(tuple(range(min(count, 3))))
