"""Lengthened: what follows the leaves of another drafter's tree, in which order, and what stays as it was."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.cost.row_costs import RowCosts
from specdec_lib.index.ngram_positions import NgramPositions
from specdec_lib.index.successor_table import WEIGHTS, SuccessorTable
from specdec_lib.index.trees import copy_probability
from specdec_lib.loop import decode
from specdec_lib.scores import Categorical
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft, Refusal, Session
from specdec_lib.what.lengthened import CARD, Lengthened
from tests.worlds import PROMPT, network_kit, run

TEXT = (1, 2, 3, 4, 5, 6, 1, 2, 7, 8, 9, 1)         # 1 2 is followed by 3 and, later, by 7
ONE = Draft((2,), (ROOT,), confidence=(.5,), source=("head",))


def grown(draft=ONE, budget=Budget(4, 4, 9), text=TEXT, price=.01, end=(), longest=3, **values):
    part = Lengthened(lambda session, own, dice: draft, SuccessorTable(8), NgramPositions(longest), price, **values)
    return part(Session(text, len(text), 50, frozenset(end)), budget, NO_DICE)


def probabilities(draft):
    reach = {ROOT: 1.0}
    for node, parent in enumerate(draft.parents):
        reach[node] = reach[parent] * draft.confidence[node]
    return [reach[node] for node in range(len(draft))]


def test_copies_follow_the_longest_ngram_and_share_its_probability():
    found = grown(budget=Budget(2, 4, 3))
    assert found.tokens == (2, 7, 3)                # of equal votes the newest first
    assert found.parents == (ROOT, 0, 0)
    assert found.source == ("head", "copied", "copied")
    assert found.confidence == (.5, copy_probability(2) / 2, copy_probability(2) / 2)
    longer = grown(replace(ONE, tokens=(3,)), text=(*TEXT[:8], 3, 5, 1, 2), budget=Budget(2, 4, 2))
    assert longer.tokens == (3, 5)                  # 1 2 3 was followed by 4 and 5: the newest first
    assert longer.confidence[1] == copy_probability(3) / 2


def test_a_token_without_an_ngram_goes_on_with_its_successors_by_rank():
    found = grown(replace(ONE, tokens=(5,)), budget=Budget(2, 4, 3), text=(1, 5, 6, 4, 5, 7, 3))
    assert found.tokens == (5, 7, 6)
    assert found.source == ("head", "recycled", "recycled")
    assert found.confidence == (.5, *WEIGHTS[:2])


def test_recycled_successors_have_what_copies_leave():
    found = grown(Draft((5,), (ROOT,), confidence=(1.0,)), budget=Budget(2, 9, 9), text=(4, 5, 6, 3, 5, 7, 4))
    assert found.tokens == (5, 6, 7)
    assert found.source == ("", "copied", "recycled")
    assert found.confidence[2] == pytest.approx((1 - copy_probability(2)) * WEIGHTS[0])


def test_nodes_join_by_the_probability_of_their_path_and_none_is_below_the_price():
    tree = Draft((2, 4), (ROOT, ROOT), confidence=(.3, .6))
    found, dear = grown(tree, Budget(9, 9, 40)), grown(tree, Budget(9, 9, 40), price=.1)
    own = probabilities(found)[2:]
    assert own == sorted(own, reverse=True)
    assert len(own) > len(dear) - 2 > 0
    assert dear.tokens == found.tokens[:len(dear)]
    assert min(probabilities(dear)[2:]) >= .1


def test_added_nodes_pay_for_the_rows_behind_those_of_the_drafter():
    tree = Draft((2, 4), (ROOT, ROOT), confidence=(.3, .6))
    whole, costs = grown(tree, Budget(9, 9, 40), price=0), RowCosts((0.0, 0.0, 5.0, 5.05, 5.1, 5.3, 5.5))
    own = probabilities(whole)[2:]
    gains = [sum(own[:n]) - (costs(2 + n) - costs(2)) for n in range(len(own) + 1)]
    cut = grown(tree, Budget(9, 9, 40), price=0, rows=costs)
    assert len(cut) - 2 == gains.index(max(gains)) < len(own)
    assert cut.tokens == whole.tokens[:len(cut)]


def test_the_drafters_nodes_stay_and_only_its_leaves_go_on():
    tree = Draft((2, 9, 8), (ROOT, 0, 0), (Categorical.point_mass(2), None, None), confidence=(.9, .5, .4),
                 notes={"a": 1})
    found = grown(tree, Budget(9, 9, 12))
    assert (found.tokens[:3], found.parents[:3], found.confidence[:3]) == (tree.tokens, tree.parents, tree.confidence)
    assert found.q == tree.q + (None,) * (len(found) - 3)
    assert found.notes == tree.notes
    assert 0 not in found.parents[3:]
    assert len(found) == 12


def test_depth_and_nodes_of_the_budget_bound_it_and_nothing_follows_an_end_token():
    assert grown(budget=Budget(3, 4, 12)).depth == 3
    assert len(grown(budget=Budget(9, 4, 5))) == 5
    assert grown(end={2}) == replace(ONE, source=("head",))
    assert 1 not in grown(end={7}).parents


def test_no_draft_and_a_draft_without_probabilities_stay_as_they_are():
    bare = Draft((2,), (ROOT,))
    assert grown(Draft()) == Draft()
    assert grown(bare) is bare


def test_siblings_differ():
    found = grown(Draft((2, 1), (ROOT, ROOT), confidence=(.5, .5)), Budget(9, 9, 60), price=1e-9)
    for children in found.children.values():
        tokens = [found.tokens[node] for node in children]
        assert len(set(tokens)) == len(tokens)


def test_with_the_head_it_changes_no_token():
    plain = run(catalog.build("ar", network_kit(None)), NO_DICE, None, 40, network_kit(None).target)
    kit = network_kit(None)
    when, match = kit.part("path-chance", depth=6, width=2, nodes=9, least=0.9), kit.part("match")
    *_, last = decode(PROMPT, kit.target, when, CARD.make(kit, price=.001), match, max_new_tokens=40)
    assert last.output == plain
    assert {"copied", "eagle2"} <= {source for round in last.rounds for source in round.draft.source}


@pytest.mark.parametrize("values", [{"price": -0.1}, {"price": 1.5}, {"weights": ()}, {"weights": (.5, 1.0)},
                                    {"longest": 1}], ids=str)
def test_bad_parameters_are_refused(values):
    with pytest.raises(Refusal, match=r"probabilit|n-gram"):
        CARD.make(network_kit(None), **values)
