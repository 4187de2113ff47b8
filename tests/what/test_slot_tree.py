"""A slot tree holds the likeliest paths through a block's slots, whether they are joined or independent."""

from dataclasses import replace
from itertools import product
from math import exp, log

import pytest
import torch

from specdec_lib.cost.row_costs import RowCosts
from specdec_lib.linked_slots import LinkedLattice, UnlinkedSlots
from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Budget, Lattice, Refusal
from specdec_lib.what.slot_tree import best_tree
from tests.worlds import PROMPT, WARM, network_kit

SESSION = begin(PROMPT, 30)
IDS = torch.tensor([[5, 6, 7], [6, 8, 9], [5, 7, 9], [6, 7, 8]])


def random_slots(seed: int) -> LinkedLattice:
    coins = torch.Generator().manual_seed(seed)
    first, after = torch.randn(3, generator=coins), torch.randn(3, 3, 3, generator=coins)
    return LinkedLattice(IDS, (2 * first).log_softmax(-1), (2 * after).log_softmax(-1))


def paths(slots: LinkedLattice) -> dict[tuple[int, ...], float]:
    """The log-probability of every path of every length, one by one."""
    out = {}
    for length in range(1, len(slots.ids) + 1):
        for columns in product(range(slots.ids.shape[1]), repeat=length):
            steps = zip(columns, columns[1:], strict=False)
            logp = float(slots.first[columns[0]]) + sum(float(slots.after[i, a, b]) for i, (a, b) in enumerate(steps))
            out[tuple(int(slots.ids[i, column]) for i, column in enumerate(columns))] = logp
    return out


def words(draft, node: int) -> tuple[int, ...]:
    return tuple(draft.tokens[i] for i in draft.path(node))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("nodes", [1, 4, 9, 30])
def test_the_tree_holds_the_likeliest_of_all_paths_best_first(seed, nodes):
    slots = random_slots(seed)
    draft = best_tree(slots, Budget(4, 8, nodes))
    each = paths(slots)
    best = sorted(each, key=lambda path: -each[path])[:nodes]
    assert [words(draft, node) for node in range(len(draft))] == best
    for node in range(len(draft)):
        chance = exp(sum(log(draft.confidence[i]) for i in draft.path(node)))
        assert chance == pytest.approx(exp(each[words(draft, node)]), rel=1e-6)


def test_a_candidates_children_depend_on_it_where_slots_are_joined():
    first = torch.tensor([.6, .4]).log()
    after = torch.tensor([[[.1, .9], [.8, .2]]]).log()
    draft = best_tree(LinkedLattice(torch.tensor([[5, 6], [7, 8]]), first, after), Budget(2, 2, 4))
    assert [words(draft, node) for node in range(4)] == [(5,), (5, 8), (6,), (6, 7)]
    alone = best_tree(UnlinkedSlots(Lattice(torch.tensor([[5, 6], [7, 8]]), torch.stack((first, after[0, 0])))),
                      Budget(2, 2, 4))
    assert [words(alone, node) for node in range(4)] == [(5,), (5, 8), (6,), (6, 8)]


def test_width_price_and_end_tokens_bound_the_tree():
    slots = random_slots(1)
    whole = best_tree(slots, Budget(4, 50, 200))
    assert len(whole) == 3 + 9 + 27 + 81
    narrow = best_tree(slots, Budget(4, 2, 200))
    assert max(map(len, narrow.children.values())) == 2
    assert len(narrow) == 4 * 2                    # depth times width bounds every budget
    dear = best_tree(slots, Budget(4, 50, 200), price=.05)
    each = paths(slots)
    assert {words(dear, node) for node in range(len(dear))} == {path for path in each if each[path] >= log(.05)}
    ended = best_tree(slots, Budget(4, 50, 200), end=frozenset({6}))
    assert not any(6 in words(ended, node)[:-1] for node in range(len(ended)))
    assert any(token == 6 for token in ended.tokens)
    assert best_tree(slots, Budget(4, 3, 200), price=1.0).tokens == ()


def test_there_are_as_many_nodes_as_gain_the_most_over_the_costs_of_their_rows():
    costs = RowCosts((0.0, .05, .1, .2, .21, .4))
    for seed in range(6):
        slots = random_slots(seed)
        likely = sorted(map(exp, paths(slots).values()), reverse=True)
        gains = [sum(likely[:n]) - costs(n) for n in range(12)]
        draft = best_tree(slots, Budget(4, 50, 200), rows=costs)
        assert gains[len(draft)] == pytest.approx(max(gains))
        assert draft == best_tree(slots, Budget(4, 50, len(draft)))


def test_the_statistics_are_those_of_the_candidates_after_the_parent():
    slots = LinkedLattice(torch.tensor([[5, 6], [7, 8]]), torch.tensor([.5, .25]).log(),
                          torch.tensor([[[.1, .9], [.8, .2]]]).log())
    draft = best_tree(slots, Budget(2, 1))
    assert draft.tokens == (5, 8)
    assert draft.stats[0][:3] == pytest.approx((.5, .5, .25))
    assert draft.stats[0].entropy == pytest.approx(.5 * log(2) + .25 * log(4) + .25 * log(4))      # the rest is a token
    assert draft.stats[1][:3] == pytest.approx((.9, .9, .1))
    assert draft.stats[1].entropy == pytest.approx(-.9 * log(.9) - .1 * log(.1), rel=1e-5)


@pytest.mark.parametrize("drafter", ["block-diffusion", "diffusion-lm"])
@pytest.mark.parametrize("linked", [True, False])
def test_one_forward_drafts_the_same_tree_at_every_temperature(drafter, linked):
    part = network_kit(None).part("slot-tree", drafter=drafter, linked=linked, price=0.0)
    cold = part(SESSION, Budget(3, 2, 6), NO_DICE)
    assert part.drafter.head.forwards == 1
    again = network_kit(None).part("slot-tree", drafter=drafter, linked=linked, price=0.0)
    assert again(replace(SESSION, sampling=WARM), Budget(3, 2, 6), NO_DICE) == cold
    assert (len(cold), cold.depth, cold.q, set(cold.source)) == (6, 3, (), {"slot-tree"})
    assert part(SESSION, Budget(0), NO_DICE).tokens == ()


def test_joined_slots_draft_other_trees_than_independent_ones_and_the_same_first_level():
    joined, alone = (network_kit(None).part("slot-tree", price=0.0, linked=linked)(SESSION, Budget(3, 5, 14), NO_DICE)
                     for linked in (True, False))
    first = [{draft.tokens[node]: draft.confidence[node] for node in draft.children[-1]} for draft in (joined, alone)]
    assert first[0] == pytest.approx(first[1])
    assert joined.confidence != pytest.approx(alone.confidence)


def test_the_price_defaults_to_what_a_node_costs():
    kit = replace(network_kit(None), price=.1)
    assert kit.part("slot-tree").price == pytest.approx(.15)
    assert kit.part("slot-tree", price=.3).price == .3


@pytest.mark.parametrize("values", [{"drafter": "eagle"}, {"price": 2.0}, {"top": 1}], ids=str)
def test_bad_values_are_refused(values):
    with pytest.raises(Refusal):
        network_kit().part("slot-tree", **values)
