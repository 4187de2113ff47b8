"""A forest holds the nodes of every tree, once, best first."""

from specdec_lib.recordings.tree_union import Until, best_first, union_tree
from specdec_lib.scores import TokenStats
from specdec_lib.types import ROOT, Budget, Draft

SEEN = TokenStats(.5, .5, .3, 1.0)


def tree(tokens, parents, confidence):
    return Draft(tokens, parents, stats=(SEEN,) * len(tokens), confidence=confidence)


def test_nodes_of_all_trees_stand_once_each_by_the_product_of_beliefs():
    one = tree((1, 2, 3), (ROOT, ROOT, 1), (.6, .3, .9))
    other = tree((1, 4), (ROOT, 0), (.6, .4))
    both = best_first([one, other])
    assert both.tokens == (1, 2, 3, 4)
    assert both.parents == (ROOT, ROOT, 1, 0)
    assert both.confidence == (.6, .3, .9, .4)
    assert len(both.stats) == 4


def test_of_equals_the_shallower_stands_first_then_the_earlier():
    assert best_first([tree((1, 2), (ROOT, 0), (.5, 1.0)), tree((3,), (ROOT,), (.5,))]).tokens == (1, 3, 2)
    assert best_first([tree((8, 7), (ROOT, ROOT), (.5, .5))]).tokens == (8, 7)


def test_a_belief_of_nothing_stands_last_and_below_its_parent():
    assert best_first([tree((1, 2, 3), (ROOT, 0, ROOT), (.5, 0.0, .1))]).tokens == (1, 3, 2)


def test_every_width_is_asked_the_largest_budget_first_and_no_level_that_changes_nothing():
    asked = []

    def chain(budget):
        last = budget.stop.depth if budget.stop else budget.depth
        asked.append((last, budget.depth, budget.width, budget.size))
        depth = min(last, 2)                               # this drafter never goes below two
        return tree(tuple(range(depth)), tuple(range(-1, depth - 1)), (.5,) * depth)

    assert union_tree(chain, Budget(5, 2, 7)).tokens == (0, 1)
    assert asked == [(5, 5, 2, 7), (1, 5, 2, 7), (5, 5, 1, 5), (1, 5, 1, 5)]


def test_a_level_is_the_last_one_once_a_trail_reaches_it():
    assert [Until(2)((SEEN,) * length) for length in range(4)] == [False, False, True, True]


def test_nothing_drafted_is_an_empty_forest():
    assert union_tree(lambda budget: Draft(), Budget(3, 2, 4)) == Draft()
