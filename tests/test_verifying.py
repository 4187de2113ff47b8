"""What lenient rules share: the paths on which every node passes, and which of them is taken."""

import math

import pytest
import torch

from specdec_lib.types import ROOT, Draft, Scores
from specdec_lib.verifying import likelihood, longest, passing

TREE = Draft((5, 6, 7, 8, 9), (ROOT, ROOT, 0, 1, 2))          # 5-7-9 and 6-8


def scores(*rows) -> Scores:
    """Row 0 stands after the context, row i + 1 after node i; each gives chances to tokens 5 to 9."""
    logits = torch.full((len(rows), 10), -math.inf)
    logits[:, 5:] = torch.tensor(rows).log() + 3              # raw logits know no scale
    return Scores(logits)


def test_a_path_goes_on_below_a_node_that_passes_and_nowhere_else():
    found = dict(passing(TREE, 0, lambda above, node: None if TREE.tokens[node] == 7 else above + 1))
    assert found == {(): 0, (0,): 1, (1,): 1, (1, 3): 2}


def test_a_test_may_carry_what_it_has_seen_along_its_own_path():
    found = dict(passing(TREE, (), lambda above, node: (*above, TREE.tokens[node])))
    assert found[0, 2, 4] == (5, 7, 9) and found[1, 3] == (6, 8)


def test_a_node_is_asked_once_and_only_if_all_above_it_passed():
    asked = []
    list(passing(TREE, 0, lambda above, node: asked.append(node) if node == 0 else asked.append(node) or above))
    assert sorted(asked) == [0, 1, 3]


def test_nothing_drafted_leaves_the_empty_path():
    assert list(passing(Draft(), 1.5, lambda above, node: above)) == [((), 1.5)]


def test_the_longest_path_is_taken_and_of_equals_the_likelier_then_the_first():
    even = scores(*[(.2,) * 5] * 6)
    assert longest(TREE, even, [(), (1,), (0, 2), (0,)]) == (0, 2)
    assert longest(TREE, scores((.1, .6, .1, .1, .1), *[(.2,) * 5] * 5), [(), (0,), (1,)]) == (1,)
    assert longest(TREE, even, [(), (1,), (0,)]) == (1,)


def test_the_likelihood_of_a_path_is_that_of_its_tokens_each_in_the_row_before_it():
    some = scores((.4, .3, .1, .1, .1), (.1, .1, .6, .1, .1), (.2,) * 5, (.1, .1, .1, .1, .6), *[(.2,) * 5] * 2)
    assert likelihood(TREE, some, (0, 2, 4)) == pytest.approx(math.log(.4 * .6 * .6))
    assert likelihood(TREE, some, ()) == 0
