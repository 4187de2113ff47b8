"""EAGLE-2's tree is the best one by the head's own scores, at one forward per level."""

import itertools
import random
from dataclasses import replace
from math import exp, log

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.cost.curves import CostCurve
from specdec_lib.cost.row_costs import FREE, RowCosts, row_costs
from specdec_lib.heads.eagle import EagleHead
from specdec_lib.loop import begin, decode
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.scores import Scores
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft, Refusal
from specdec_lib.what.eagle2 import Eagle2
from tests.worlds import PROMPT, WARM, network_kit, random_eagle, run

IDS = (2, 5, 7, 11)
TEXT = (1, 2, 3, 4, 5, 6)


class Head:
    """Scores of every path from a seed; a large `sharp` makes confident rows, `coarse` makes ties."""

    widest = 0                                     # it grows no tree in one call

    def __init__(self, seed: int, sharp: float = 1.0, coarse: bool = False):
        self.seed, self.sharp, self.coarse, self.calls = seed, sharp, coarse, []

    def row(self, path):
        dice = random.Random(f"{self.seed}{path}")
        chosen = [dice.choice((0.0, 1.0)) if self.coarse else dice.gauss(0, 1) for _ in IDS]
        return torch.tensor(chosen, dtype=torch.float64) * self.sharp

    def __call__(self, tokens, draft):
        self.calls.append(draft)
        paths = [()] + [tuple(draft.tokens[i] for i in draft.path(node)) for node in range(len(draft))]
        return Scores(torch.stack([self.row(path) for path in paths]), torch.tensor(IDS))


def heads():
    return [Head(seed, sharp, coarse) for seed in range(12) for sharp, coarse in ((1, False), (4, False), (3, True))]


def drafted(head, budget, end=(), text=TEXT):
    return Eagle2(head)(begin(text, 30, end=frozenset(end)), budget, NO_DICE)


def paths(draft) -> set:
    return {tuple(draft.tokens[i] for i in draft.path(node)) for node in range(len(draft))}


def every_path(row, depth, end=()):
    """Score of every path of at most this depth, summed from `row(path)`; no path continues after an end token."""
    scores = {}
    for length in range(1, depth + 1):
        for path in itertools.product(IDS, repeat=length):
            if not set(path[:-1]) & set(end):
                above = scores.get(path[:-1], 0.0)
                scores[path] = above + float(torch.log_softmax(row(path[:-1]), -1)[IDS.index(path[-1])])
    return scores


def best(scores, nodes) -> set:
    return set(sorted(scores, key=scores.get, reverse=True)[:nodes])


def published_growth(head, budget, end=()):
    """The published growth: every level up to the budget's depth, all scored nodes kept, the best chosen."""
    pool, frontier = {}, [()]
    for _ in range(budget.depth):
        level = {}
        for path in frontier:
            probs = torch.log_softmax(head.row(path), -1).tolist()
            for of, token in sorted(zip(probs, IDS, strict=True), key=lambda pair: -pair[0])[:budget.width]:
                level[(*path, token)] = pool.get(path, 0.0) + of
        pool |= level
        frontier = [path for path in sorted(level, key=lambda path: -level[path]) if path[-1] not in end]
        frontier = frontier[:budget.width]
    return best(pool, budget.size)


@pytest.mark.parametrize(("depth", "nodes"), [(1, 3), (2, 4), (3, 6), (4, 9), (4, 12)])
def test_with_enough_width_the_tree_has_the_best_of_all_paths(depth, nodes):
    for head in heads():
        if not head.coarse:
            assert paths(drafted(head, Budget(depth, nodes, nodes))) == best(every_path(head.row, depth), nodes)


def test_the_tree_of_a_network_has_the_best_of_all_paths():
    shape = LlamaConfig(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, mlp=16, vocab=13, context=128)
    for seed in range(6):
        state = random_eagle(shape, (0, 1, 2), IDS, seed).state
        target = Transformer.random(shape, seed=seed, dtype=torch.float64)
        head, other = (EagleHead(state, (0, 1, 2), target.fresh()) for _ in range(2))

        def row(path):
            return other(TEXT, Draft(path, tuple(range(-1, len(path) - 1)))).logits[len(path)]    # noqa: B023

        draft = drafted(head, Budget(3, 7, 7))
        assert paths(draft) == best(every_path(row, 3), 7)
        assert head.forwards == 3


@pytest.mark.parametrize("budget", [Budget(4, 2, 6), Budget(5, 3, 8), Budget(3, 3), Budget(5, 4, 4), Budget(6, 1)],
                         ids=lambda budget: f"{budget.depth} {budget.width} {budget.nodes}")
@pytest.mark.parametrize("end", [(), (5,)], ids=["", "end"])
def test_skipping_hopeless_growth_changes_no_tree(budget, end):
    for head in heads():
        if not head.coarse:
            assert paths(drafted(head, budget, end)) == published_growth(head, budget, end)


def test_at_equal_scores_a_parent_comes_before_its_children():
    for head in heads():
        draft = drafted(head, Budget(5, 3, 9))
        assert len(draft) == 9
        assert all(parent < node for node, parent in enumerate(draft.parents))


def test_at_equal_scores_a_child_is_not_chosen_before_its_parent():
    head = Head(0, sharp=1e6)                                          # one token per row has probability 1
    draft = drafted(head, Budget(6, 2, 3))
    assert draft.parents == (ROOT, 0, 1)
    assert draft.confidence == (1.0,) * 3


def test_nodes_are_level_by_level_best_first_and_confidences_multiply_to_scores():
    for head in heads():
        draft, scores = drafted(head, Budget(4, 4, 9)), every_path(head.row, 4)
        reach = {ROOT: 1.0}
        for node, parent in enumerate(draft.parents):
            reach[node] = reach[parent] * draft.confidence[node]
            path = tuple(draft.tokens[i] for i in draft.path(node))
            assert reach[node] == pytest.approx(exp(scores[path]), abs=1e-12)
        order = [(depth, -reach[node] - 1e-12 * (9 - node)) for node, depth in enumerate(draft.depths)]
        assert order == sorted(order)


def test_token_statistics_are_those_of_the_raw_softmax():
    head = Head(1)
    draft = drafted(head, Budget(2, 2, 4))
    for node in range(4):
        path = tuple(draft.tokens[i] for i in draft.path(node))
        probs = torch.softmax(head.row(path[:-1]), -1)
        want = (float(probs[IDS.index(path[-1])]), *torch.topk(probs, 2).values.tolist(),
                -sum(p * log(p) for p in probs.tolist()))
        assert draft.stats[node] == pytest.approx(want)


@pytest.mark.parametrize("budget", [Budget(5, 4, 8), Budget(3, 2), Budget(4, 4, 1), Budget(2, 9, 30), Budget(9, 1)],
                         ids=lambda budget: f"{budget.depth} {budget.width} {budget.nodes}")
def test_depth_width_and_nodes_bound_the_tree_and_the_forwards(budget):
    for head in heads():
        draft = drafted(head, budget)
        assert len(draft) <= budget.size
        assert draft.depth <= budget.depth
        assert len(head.calls) <= budget.depth
        assert max(map(len, draft.children.values())) <= budget.width
        assert all(list(fed.depths).count(depth) <= budget.width for fed in head.calls for depth in fed.depths)


@pytest.mark.parametrize("price", [0.05, 0.3, 0.6])
def test_exactly_the_nodes_below_the_price_are_left_out(price):
    for head in heads():
        draft, whole = (Eagle2(head, least)(begin(TEXT, 30), Budget(3, 4, 8), NO_DICE) for least in (price, 0.0))
        probs = {path: exp(score) for path, score in every_path(head.row, 3).items()}
        assert paths(draft) == {path for path in paths(whole) if probs[path] >= price}


def test_as_many_nodes_are_submitted_as_gain_the_most_over_the_costs_of_their_rows():
    costs = RowCosts((0.0, .05, .2, .5, .6, 1.0))
    sizes = set()
    for head in heads():
        whole, draft = (Eagle2(head, rows=rows)(begin(TEXT, 30), Budget(3, 4, 8), NO_DICE) for rows in (FREE, costs))
        probs = {path: exp(score) for path, score in every_path(head.row, 3).items()}
        gains = [sum(sorted((probs[path] for path in paths(whole)), reverse=True)[:n]) - costs(n)
                 for n in range(len(whole) + 1)]
        assert paths(draft) <= paths(whole)
        assert sum(probs[path] for path in paths(draft)) - costs(len(draft)) == pytest.approx(max(gains))
        sizes.add(len(draft))
    assert len(sizes) > 2


def test_what_rows_cost_comes_from_the_kits_curve():
    curve = CostCurve((1, 5, 9), (256,), ((10.0, 12.0, 20.0),))
    made = catalog.make_part("eagle2", replace(network_kit(None), cost=curve))
    assert (made.price, made.rows) == (0, row_costs(curve, 1.25))
    assert catalog.make_part("eagle2", replace(network_kit(None), cost=curve), price=.2).rows == FREE


def test_the_price_comes_from_the_kit_and_is_a_probability():
    world = network_kit(None)
    made = catalog.make_part("eagle2", replace(world, price=0.04))
    assert made.price == pytest.approx(1.25 * 0.04)
    assert catalog.make_part("eagle2", replace(world, price=5.0)).price == 1
    with pytest.raises(Refusal, match="between 0 and 1, got 2"):
        catalog.make_part("eagle2", world, price=2)


def test_each_call_extends_the_previous_tree_by_one_level():
    head = Head(3)
    drafted(head, Budget(5, 4, 12))
    assert [fed.depth for fed in head.calls] == list(range(len(head.calls)))
    assert len(head.calls) > 2
    for less, more in itertools.pairwise(head.calls):
        assert more.keep(tuple(range(len(less)))).tokens == less.tokens


def test_growth_ends_when_no_open_node_can_have_a_child_in_the_tree():
    assert len(drafted(flat := Head(2, sharp=.01), Budget(6, 4, 4))) == 4
    assert len(flat.calls) == 2
    assert drafted(peaked := Head(2, sharp=50), Budget(6, 4, 8)).depth == 6
    assert len(peaked.calls) == 6
    assert len(drafted(one := Head(2), Budget(6, 4, 1))) == 1
    assert len(one.calls) == 1


def test_only_open_nodes_that_may_have_a_child_in_the_tree_are_fed():
    for head in heads():
        drafted(head, Budget(4, 5, 5))
        for depth, fed in enumerate(head.calls[1:], 1):
            new = {path for path in paths(fed) if len(path) == depth}
            so_far = best(every_path(head.row, depth), 4)              # a child of the fifth best would be sixth
            assert head.coarse or new == {path for path in so_far if len(path) == depth}
            assert len(new) <= 4


def test_nothing_grows_below_an_end_token():
    head = Head(4)
    first = drafted(head, Budget(1)).tokens[0]
    draft = drafted(head, Budget(5, 4, 9), end=(first,))
    assert draft.tokens[0] == first
    assert 0 not in draft.parents


def test_the_stop_rule_is_called_once_per_level_with_the_best_path():
    head, trails = Head(5), []
    draft = drafted(head, Budget(4, 3, 12, stop=lambda trail: trails.append(trail) or len(trail) == 2))
    assert len(trails) == len(head.calls) == 2
    assert draft.depth == 2
    for depth, trail in enumerate(trails, 1):
        level = {path: score for path, score in every_path(head.row, depth).items() if len(path) == depth}
        path = max(level, key=level.get)
        want = [torch.softmax(head.row(path[:i]), -1)[IDS.index(path[i])] for i in range(depth)]
        assert [one.prob for one in trail] == pytest.approx([float(prob) for prob in want])


@pytest.mark.parametrize("sampling", [None, WARM], ids=["greedy", "sampling"])
def test_nodes_are_deterministic_and_the_same_at_any_temperature(sampling):
    part = network_kit(sampling).part("eagle2", sharpness=2.0)
    draft = part(begin(PROMPT, 30, sampling=sampling), Budget(3, 2, 5), NO_DICE)      # NO_DICE raises on a draw
    assert len(draft) == 5
    assert draft.q == ()
    assert draft.source == ("eagle2",) * 5
    assert draft == network_kit(None).part("eagle2", sharpness=2.0)(begin(PROMPT, 30), Budget(3, 2, 5), NO_DICE)


def test_a_prompt_of_one_token_or_an_empty_budget_gives_no_draft():
    part = network_kit(None).part("eagle2")
    assert part(begin((1,), 9), Budget(3, 2), NO_DICE) == part(begin(PROMPT, 9), Budget(3, 2, 0), NO_DICE) == Draft()
    assert part.head.forwards == 0


def test_after_rounds_of_other_drafters_the_draft_is_the_same_as_with_a_call_each_round():
    rarely, always, eager = network_kit(None), network_kit(None), []
    late, early = rarely.part("eagle2"), always.part("eagle2")
    text = PROMPT + run(catalog.build("ar", network_kit(None)), NO_DICE, None, 60, network_kit().target)
    budget = Budget(3, 2, 5)

    def copy(position):
        """Two right tokens beside a wrong one, so that rows of accepted nodes have to move."""
        return Draft(((text[position] + 1) % 3, *text[position:position + 2]), (ROOT, ROOT, 1))

    def both(session, _, dice):
        position, turn = len(session.tokens), len(session.rounds)
        eager.append(early(session, budget, dice))
        always.target(session.tokens, Draft())
        if turn % 4:
            return copy(position)
        forwards, fed, missing = late.head.forwards, late.head.fed, position - 1 - known[-1]
        draft = late(session, budget, dice)
        assert (draft.tokens, draft.parents) == (eager[-1].tokens, eager[-1].parents)
        assert draft.confidence == pytest.approx(eager[-1].confidence, abs=1e-9)
        assert late.head.forwards - forwards <= budget.depth           # missing rows come with the first level
        assert late.head.fed - fed <= missing + 2 * (budget.depth - 1)
        known.append(position - 1)
        return draft

    known = [0]
    match = network_kit(None).part("match")
    *_, last = decode(PROMPT, rarely.target, lambda session, dice: budget, both, match, max_new_tokens=40)
    assert len(known) > 4
    assert min(b - a for a, b in itertools.pairwise(known[1:])) > 8
    assert len(last.output) == 40
