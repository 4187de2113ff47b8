"""Replaying recorded drafts: chains are cut, trees are grown again on the recorded union of trees."""

import itertools
import random
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from specdec_lib.cost.curves import CostCurve
from specdec_lib.cost.row_costs import FREE, row_costs
from specdec_lib.loop import begin
from specdec_lib.models.replay import Recording
from specdec_lib.recordings.tree_union import union_tree
from specdec_lib.scores import RowStats, Scores
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft
from specdec_lib.what.eagle2 import Eagle2
from specdec_lib.what.recorded import Recorded, regrow

DRAFTS = {4: (deterministic_chain((5, 6, 7, 8)), deterministic_chain(())),
          8: (deterministic_chain(range(20, 28)), deterministic_chain((1,)))}
REC = Recording((1, 2, 5, 6), 2, RowStats(None, None), {"copy": DRAFTS}, {})
LARGEST = Budget(4, 3, 9)
SMALLER = [Budget(depth, width, nodes) for depth, width, nodes in itertools.product(range(5), range(1, 4), range(10))]
IDS = (2, 5, 7, 11, 13)


def test_the_shortest_recorded_draft_that_fits_the_budget_is_used():
    assert Recorded(REC, "copy")(begin((1, 2), 30), Budget(3), NO_DICE).tokens == (5, 6, 7)
    assert Recorded(REC, "copy")(begin((1, 2), 30), Budget(5), NO_DICE).tokens == (20, 21, 22, 23, 24)


def test_after_the_end_of_the_recording_the_draft_is_empty():
    assert len(Recorded(REC, "copy")(begin((1, 2, 5, 6), 30), Budget(3), NO_DICE)) == 0


@dataclass(frozen=True)
class Head:
    """A distribution of the next token for every path, from a seed; a large `sharp` makes deep trees."""

    seed: int
    sharp: float = 1.0
    widest: ClassVar[int] = 0                      # it grows no tree in one call

    def __call__(self, tokens, draft):
        paths = [()] + [tuple(draft.tokens[i] for i in draft.path(node)) for node in range(len(draft))]
        dice = [random.Random(f"{self.seed}{path}") for path in paths]
        return Scores(torch.tensor([[self.sharp * one.gauss(0, 1) for _ in IDS] for one in dice], dtype=torch.float64),
                      torch.tensor(IDS))


@dataclass(frozen=True)
class Faint:
    """A stop rule: the path probability is below `bound`."""

    bound: float

    def __call__(self, trail):
        reach = 1.0
        for one in trail:
            reach *= one.prob
        return reach < self.bound


HEADS = [Head(seed, sharp) for seed in range(4) for sharp in (.5, 2, 5)]


def live(head, budget, end=(), price=0.0, rows=FREE):
    return Eagle2(head, price, rows)(begin((1, 2), 30, end=frozenset(end)), budget, NO_DICE)


def replayed(head, budget, end=(), largest=LARGEST, price=0.0, rows=FREE):
    trees = {9: (union_tree(lambda asked: live(head, asked, end), largest),)}
    rec = Recording((1, 2, 0), 2, RowStats(None, None), {"eagle2": trees}, {}, trees={"eagle2": largest})
    return Recorded(rec, "eagle2", price, rows)(begin((1, 2), 30, end=frozenset(end)), budget, NO_DICE)


def same(one, other):
    return ((one.tokens, one.parents, one.stats) == (other.tokens, other.parents, other.stats)
            and one.confidence == other.confidence)


@pytest.mark.parametrize("end", [(), (5, 7)], ids=["", "end"])
@pytest.mark.parametrize("head", HEADS, ids=str)
def test_the_union_of_trees_replays_the_exact_tree_of_every_smaller_budget(head, end):
    kept = union_tree(lambda asked: live(head, asked, end), LARGEST)
    rec = Recording((1, 2, 0), 2, RowStats(None, None), {"eagle2": {9: (kept,)}}, {}, trees={"eagle2": LARGEST})
    session = begin((1, 2), 30, end=frozenset(end))
    for budget in SMALLER:
        assert same(Recorded(rec, "eagle2")(session, budget, NO_DICE), live(head, budget, end)), budget


def test_the_largest_tree_alone_does_not_contain_the_smaller_ones():
    def missing(head):
        whole = paths(live(head, LARGEST))
        return [budget for budget in SMALLER if not paths(live(head, budget)) <= whole]

    lost = [budget for head in HEADS for budget in missing(head)]
    assert any(budget.width == 3 for budget in lost)
    assert any(budget.depth == 4 for budget in lost)
    assert not [budget for budget in lost if (budget.width, budget.depth) == (3, 4)]


def paths(draft) -> set:
    return {tuple(draft.tokens[i] for i in draft.path(node)) for node in range(len(draft))}


@pytest.mark.parametrize("bound", [.9, .6, .4])
def test_a_stop_rule_ends_the_replayed_growth_at_the_same_level(bound):
    budget = Budget(4, 3, 9, stop=Faint(bound))
    trees = [(replayed(head, budget), live(head, budget)) for head in HEADS]
    assert all(same(one, other) for one, other in trees)
    assert any(other.depth < live(head, LARGEST).depth for (_, other), head in zip(trees, HEADS, strict=True))


@pytest.mark.parametrize("price", [.06, .1, .3])
def test_a_price_prunes_the_same_nodes_as_live(price):
    for head in HEADS:
        for budget in (LARGEST, Budget(3, 2, 5), Budget(4, 1)):
            assert same(replayed(head, budget, price=price), live(head, budget, price=price))
    assert sum(len(replayed(head, LARGEST, price=price)) for head in HEADS) < 9 * len(HEADS)


def test_no_more_nodes_are_kept_than_are_worth_their_rows_as_live():
    costs = row_costs(CostCurve((1, 4, 10), (8,), ((1.0, 1.2, 2.0),)), 1.25)
    for head in HEADS:
        for budget in (LARGEST, Budget(3, 2, 5), Budget(4, 1)):
            assert same(replayed(head, budget, rows=costs), live(head, budget, rows=costs))
    few, all_of = (sum(len(replayed(head, LARGEST, rows=one)) for head in HEADS) for one in (costs, FREE))
    assert 0 < few < all_of


def test_a_budget_beyond_the_recorded_one_gives_the_recorded_ones_tree():
    for head in HEADS:
        for budget in (Budget(6, 5, 20), Budget(9, 1), Budget(4, 9, 5)):
            own = Budget(min(budget.depth, 4), min(budget.width, 3), min(budget.size, 9))
            assert same(replayed(head, budget), live(head, own))


def by_hand(**nodes):
    """A union of trees from `word=(parent, path probability)`, in this order; a word is its own token."""
    index = {"": ROOT} | {word: i for i, word in enumerate(nodes)}
    kept = Draft(tuple(map(hash, nodes)), tuple(index[parent] for parent, _ in nodes.values()))
    reach = [prob for _, prob in nodes.values()]
    assert reach == sorted(reach, reverse=True)
    return kept


def words(draft, forest_of):
    name = {hash(word): word for word in forest_of}
    return [name[token] for token in draft.tokens]


def test_an_end_token_does_not_count_among_the_nodes_of_the_next_level():
    nodes = {"a": ("", .5), "b": ("", .45), "end": ("a", .4), "b1": ("b", .32), "b2": ("b", .11), "on": ("b2", .1),
             "a2": ("a", .05)}
    assert words(regrow(by_hand(**nodes), Budget(3, 2, 6), frozenset({hash("end")})), nodes) == [
        "a", "b", "end", "b1", "b2", "on"]
    assert words(regrow(by_hand(**nodes), Budget(3, 2, 6)), nodes) == ["a", "b", "end", "b1", "b2", "a2"]


def test_a_node_of_narrower_trees_only_does_not_join_a_wider_one():
    nodes = {"a": ("", .5), "b": ("", .45), "b1": ("b", .27), "b2": ("b", .17), "a1": ("a", .06), "on": ("a1", .05),
             "b11": ("b1", .02)}
    rec = Recording((1, 2, 0), 2, RowStats(None, None), {"eagle2": {7: (by_hand(**nodes),)}}, {},
                    trees={"eagle2": Budget(3, 2, 7)})
    for width in (2, 3):                                   # a larger width than recorded is read as the recorded one
        draft = Recorded(rec, "eagle2")(begin((1, 2), 30), Budget(3, width, 6), NO_DICE)
        assert words(draft, nodes) == ["a", "b", "b1", "b2", "a1", "b11"]
    narrow = Recorded(rec, "eagle2")(begin((1, 2), 30), Budget(3, 1), NO_DICE)
    assert words(narrow, nodes) == ["a", "a1", "on"]
