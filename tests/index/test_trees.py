"""Copies share one tree: the most probable nodes first, none below its price, within the budget."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib.cost.row_costs import FREE, RowCosts
from specdec_lib.index.trees import CopySource, copy_probability, corpus_probability, likely_tree
from specdec_lib.types import ROOT, Budget

LARGE = Budget(16, 8, 16)


def grown(*copies, budget=LARGE, least=0.0, price=0.0, rows=FREE):
    return likely_tree(copies, budget, least, price, "past", rows)


def test_one_copy_is_a_chain_whose_confidence_grows_with_the_match():
    draft, members = grown(CopySource((7, 8, 9), 3))
    assert draft.tokens == (7, 8, 9)
    assert draft.parents == (ROOT, 0, 1)
    assert members == [(0, 1, 2)]
    assert draft.confidence == pytest.approx((copy_probability(3), copy_probability(4), copy_probability(5)))
    assert draft.source == ("past",) * 3
    assert draft.q == ()


def test_a_score_multiplies_the_odds_of_its_copy():
    odds = copy_probability(3) / (1 - copy_probability(3))
    (prob,), = [grown(CopySource((7,), 3, 0.8))[0].confidence]
    assert prob / (1 - prob) == pytest.approx(odds * 4)
    assert grown(CopySource((7,), 3, 1.0))[0].confidence[0] < 1
    assert grown(CopySource((7,), 3, 0.0))[0].confidence[0] > 0


def test_copies_that_agree_share_nodes_and_outvote_another():
    draft, members = grown(CopySource((7, 8), 2), CopySource((7, 9), 2), CopySource((5, 6), 2))
    assert members[0][0] == members[1][0] == 0
    first = {draft.tokens[node]: draft.confidence[node] for node in draft.children[ROOT]}
    assert first[7] == pytest.approx(2 * first[5])
    assert sum(first.values()) == pytest.approx(copy_probability(2))


def test_nodes_join_by_the_probability_of_their_whole_path():
    draft, _ = grown(CopySource((1, 2, 3, 4), 8), CopySource((5, 6), 2), budget=Budget(16, 8, 5))
    path = {ROOT: 1.0}
    for node, parent in enumerate(draft.parents):
        path[node] = path[parent] * draft.confidence[node]
    probs = [path[node] for node in range(len(draft))]
    assert probs == sorted(probs, reverse=True)
    assert len(draft) == 5


def test_a_node_whose_path_is_below_the_price_is_left_out():
    whole, _ = grown(CopySource(tuple(range(1, 9)), 2))
    cut, _ = grown(CopySource(tuple(range(1, 9)), 2), price=0.3)
    path, kept = 1.0, 0
    for prob in whole.confidence:
        path *= prob
        kept += path >= 0.3
    assert len(whole) == 8
    assert 0 < len(cut) == kept < 8
    assert len(grown(CopySource((7,), 2), price=whole.confidence[0])[0]) == 1          # at the price it joins


def test_there_are_as_many_nodes_as_gain_the_most_over_the_costs_of_their_rows():
    copies = CopySource(tuple(range(1, 9)), 3), CopySource((1, 2, 20, 21, 22), 2), CopySource((30, 31), 2)
    whole, costs = grown(*copies)[0], RowCosts((0.0, .1, .2, .7, .75, 1.3))
    reach = []
    for node, parent in enumerate(whole.parents):
        reach.append((reach[parent] if parent != ROOT else 1.0) * whole.confidence[node])
    gains = [sum(reach[:n]) - costs(n) for n in range(len(whole) + 1)]
    cut, members = grown(*copies, rows=costs)
    assert len(cut) == gains.index(max(gains)) < len(whole)
    assert (cut.tokens, cut.parents) == (whole.tokens[:len(cut)], whole.parents[:len(cut)])
    assert {node for nodes in members for node in nodes} == set(range(len(cut)))


def test_the_tree_is_empty_if_the_first_token_is_below_least():
    assert len(grown(CopySource((7, 8), 2), least=copy_probability(2) + 0.01)[0]) == 0
    assert len(grown(CopySource((7, 8), 2), least=copy_probability(2) - 0.01)[0]) == 2


def test_the_budget_bounds_depth_width_and_nodes():
    copies = (CopySource((1, 2, 3), 4), CopySource((5, 6, 7), 3), CopySource((8, 9, 4), 2))
    assert grown(*copies, budget=Budget(2, 8, 16))[0].depth == 2
    assert len(grown(*copies, budget=Budget(8, 2, 16))[0].children[ROOT]) == 2
    assert len(grown(*copies, budget=Budget(8, 8, 4))[0]) == 4


def test_no_copies_or_empty_ones_make_no_tree():
    assert len(grown()[0]) == 0
    assert grown(CopySource((), 3)) == grown(CopySource((), 5))


def test_the_confidence_of_a_copy_is_n_over_n_plus_1_5_and_0_24_after_one_token():
    assert copy_probability(1) == 0.24
    assert [copy_probability(n) for n in (2, 3, 16)] == pytest.approx([2 / 3.5, 3 / 4.5, 16 / 17.5])


def test_a_copy_from_a_corpus_is_less_sure_and_surer_with_the_match():
    draft, _ = grown(CopySource((7, 8, 9), 3, probability=corpus_probability))
    assert draft.confidence == pytest.approx((3 / 11, 4 / 12, 5 / 13))
    assert all(corpus_probability(n) < copy_probability(n) for n in range(1, 65))


COPIES = st.lists(st.builds(CopySource, st.lists(st.integers(0, 2), max_size=6).map(tuple), st.integers(1, 9),
                            st.floats(0, 1), st.sampled_from([copy_probability, corpus_probability])), max_size=5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(COPIES, st.builds(Budget, st.integers(0, 6), st.integers(1, 3), st.integers(0, 12)),
       st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.01, 0.2]))
def test_a_tree_of_copies_is_well_formed_and_within_the_budget(copies, budget, least, price):
    draft, members = grown(*copies, budget=budget, least=least, price=price)
    assert len(draft.tokens) == len(draft.parents) == len(draft.confidence) <= budget.size
    assert all(ROOT <= parent < node for node, parent in enumerate(draft.parents)), "parents come before children"
    assert len(set(zip(draft.parents, draft.tokens, strict=True))) == len(draft), "siblings differ"
    assert draft.depth <= budget.depth
    assert all(len(children) <= budget.width for children in draft.children.values())
    for copy, nodes in zip(copies, members, strict=True):
        assert tuple(draft.tokens[node] for node in nodes) == copy.tokens[:len(nodes)]
        assert nodes == draft.path(nodes[-1] if nodes else ROOT)
    assert {node for nodes in members for node in nodes} == set(range(len(draft)))
