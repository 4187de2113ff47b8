"""EAGLE-2 assembled, alone and behind retrieval."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.cost import curves
from specdec_lib.cost.curves import CostCurve
from specdec_lib.loop import decode
from specdec_lib.trees import stop_when_unlikely
from specdec_lib.types import NO_DICE, Budget
from tests.worlds import PROMPT, kit, network_kit, run

NAMES = ["eagle2", "eagle2(nodes=7,depth=3)", "sam+eagle2", "sam+eagle2(threshold=5,copy=4,depth=2)"]


def decoded(name, tokens=40, prompt=PROMPT):
    world = network_kit(None)
    method = catalog.build(name, world)
    *_, last = decode(prompt, world.target, *method, max_new_tokens=tokens)
    return last, world, method


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prompt", [PROMPT, (1,), (2, 2)], ids=str)
def test_the_output_is_plain_decodings(name, prompt):
    plain = run(catalog.build("ar", network_kit(None)), NO_DICE, None, 40, network_kit(None).target, prompt)
    last, world, _ = decoded(name, prompt=prompt)
    assert last.output == plain
    assert world.target.forwards == len(last.rounds) + (len(prompt) > 1)       # drafting costs no target forward


def test_the_head_runs_at_most_one_forward_per_level_and_round():
    last, _, method = decoded("eagle2(depth=3)")
    assert 0 < method.what.head.forwards <= sum(min(3, round.budget.depth) for round in last.rounds)


def test_rounds_that_copy_cost_no_forward_of_the_head():
    last, _, method = decoded("sam+eagle2")
    head = method.what.drafters["eagle2"].head
    own = [round.budget for round in last.rounds if set(round.draft.source) == {"eagle2"}]
    copied = [round for round in last.rounds if set(round.draft.source) == {"suffix-automaton"}]
    assert own
    assert copied
    assert head.forwards <= sum(budget.depth for budget in own)


def budget(name, nodes):
    when = catalog.build(name, replace(network_kit(None), nodes=nodes)).when
    return (when.depth, when.width, when.nodes) if name.startswith("eagle2") else (when.copy, when.other)


def test_nodes_come_from_the_cost_curve_and_the_width_suffices_for_them():
    curve = CostCurve((1, 6, 7), (256,), ((1.0, 1.2, 1.3),))
    assert curves.node_budget(curve) == 5
    assert budget("eagle2", curves.node_budget(curve)) == (5, 4, 10)
    assert budget("eagle2", 30) == (5, 12, 60)
    assert Budget(*budget("eagle2", 30)).size == 60


@pytest.mark.parametrize("name", ["respec", "respec-relaxed", "respec+memory", "respec+lengthened"])
@pytest.mark.parametrize("nodes", [5, 15, 31])
def test_the_tree_of_respec_is_that_of_eagle2(name, nodes):
    world = replace(network_kit(None), nodes=nodes)
    assert catalog.build(name, world).when.model == catalog.build("sam+eagle2", world).when.other
    assert catalog.build(name, world).when.model.size == 2 * nodes


def test_by_default_least_is_a_quarter_and_a_tree_has_twice_the_nodes_of_the_curve():
    world = replace(network_kit(None), nodes=6)
    assert catalog.build("eagle2", world).when.least == 0.25
    when = catalog.build("sam+eagle2", world).when
    assert when.other == stop_when_unlikely(Budget.of("eagle2", 5, 4, 12), 0.25)
    assert when.copy.depth == 6


def test_the_published_tree_can_be_set():
    assert budget("eagle2(depth=6, width=10, nodes=59)", 8) == (6, 10, 59)
    assert Budget(6, 10, 59).size == 59
    copy, tree = budget("sam+eagle2(threshold=5, copy=40, depth=6, width=10, nodes=59)", 8)
    assert (copy.depth, copy.width, tree.depth, tree.width, tree.nodes) == (40, 1, 6, 10, 59)
    assert (copy.source, tree.source) == ("suffix-automaton", "eagle2")


def test_without_the_checkpoint_both_list_it_as_missing():
    for name in ("eagle2", "sam+eagle2"):
        assert catalog.missing(catalog.methods()[name], network_kit(None)) == []
        assert catalog.missing(catalog.methods()[name], kit(None)) == ["eagle"]
