"""Counts of the text join the head's scores, and rows that cannot pay are not computed."""

import itertools
import random
from math import exp

import pytest
import torch

from specdec_lib.cost.row_costs import FREE, RowCosts
from specdec_lib.heads.text_counts import TextCounts
from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft, Refusal
from specdec_lib.what.eagle2 import COUNTS, Eagle2, candidate_tree, expand, grow_candidates, ranking
from tests.what.test_eagle2 import IDS, TEXT, Head, drafted, heads, paths
from tests.worlds import WARM, network_kit


def read(counts, text):
    counts.read(text)
    return counts


def test_rows_of_candidates_whose_children_cannot_pay_are_left_out_and_no_tree_changes():
    dice, saved = random.Random(5), 0
    for head in heads() * 3:
        steps = [dice.choice((0.0, 0.02, 0.1, 0.2)) for _ in range(dice.randrange(1, 9))]
        rows, budget = RowCosts((0.0, *itertools.accumulate(steps))), Budget(4, dice.choice((2, 4)))
        price = dice.choice((0.0, 0.0, 0.05, 0.3))
        head.calls.clear()
        draft = Eagle2(head, price, FREE if price else rows)(begin(TEXT, 30), budget, NO_DICE)
        asked = len(head.calls[-1])
        pool = grow_candidates(frozenset(), budget, lambda fed, head=head: head(TEXT, fed))
        best = ranking([node.score for node in pool])[:budget.size]
        chances = [exp(pool[node].score) for node in best]
        count = sum(chance >= price for chance in chances) if price else rows.worth(chances)
        assert draft == candidate_tree(pool, sorted(best[:count]))
        saved += len(head.calls[-1]) - asked
    assert saved > 50


def test_counts_of_the_text_raise_what_followed_there_and_weigh_nothing_at_zero():
    head, budget, text = Head(3), Budget(2, 2), (1, 2, 3, 7, 5, 1, 2, 3)
    drafts = [Eagle2(head, counts=TextCounts(weight))(begin(text, 30), budget, NO_DICE) for weight in (0.0, 20.0)]
    assert drafts[0] == drafted(head, budget, text=text)
    assert drafts[0].tokens[0] != 7
    assert {(7,), (7, 5)} <= paths(drafts[1])      # with a small part of what is left for the others
    (one,) = expand([], [ROOT], head(text, Draft()), 1, counts=read(TextCounts(20.0), text))
    logits = head.row(())
    chance = 1 / 2 + (1 / 2) * (1 / 2 + (1 / 2) * (1 / 2))                # three orders, each seen once
    logits[IDS.index(7)] += 20 * chance
    assert one.token == 7
    assert one.score == pytest.approx(float(torch.log_softmax(logits, -1)[IDS.index(7)]))


def test_a_method_that_counts_does_so_where_decoding_is_greedy():
    assert network_kit(None).part("eagle2").counts is None
    assert network_kit(None).part("eagle2", counts=None).counts.weight == COUNTS
    assert network_kit(WARM).part("eagle2", counts=None).counts is None
    assert network_kit(WARM).part("eagle2", counts=1.5).counts.weight == 1.5
    with pytest.raises(Refusal, match="counts must be 0 or more"):
        network_kit(None).part("eagle2", counts=-1)
