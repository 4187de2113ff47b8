"""The latency of stacks: the programme against trying everything, overshoot against playing the recursion."""

import random

import pytest

from specdec_lib.cost.curves import CostCurve, best_depth, expected_tokens
from specdec_lib.cost.hierarchy import (
    LevelCost,
    LevelTerms,
    best_by_renewal,
    best_levels,
    best_stack,
    block_law,
    every_stack,
    gain_of_stacking,
    renewal_latency,
    renewal_round,
    round_law,
    simulated_latency,
    stack_latency,
    step_latency,
)

# The sheet's example names its latencies and not its costs. Both formulas see the costs only as 5 c_0 + c_1 and c_2:
# 0.434 and 0.4036 are two equations for them, solved by 0.5001 and 1.4998, so 0.5 and 1.5; c_0 is chosen freely.
COSTS = (.05, .25, 1.5)
ALPHA = ((1.0, .9, .5), (.9, 1.0, .9), (.5, .9, 1.0))


def instance(seed: int, models: int = 4):
    """Rising costs and acceptances that fall with the distance in cost, with noise."""
    dice = random.Random(seed)
    costs = sorted(dice.uniform(.005, .6) for _ in range(models - 1)) + [1.0]
    alpha = [[0.0] * models for _ in range(models)]
    for j in range(models):
        for i in range(j):
            alpha[i][j] = dice.uniform(.3, .98)
    return costs, alpha


@pytest.mark.parametrize("seed", range(25))
def test_the_programme_finds_what_trying_every_stack_finds(seed):
    costs, alpha = instance(seed)
    tried = {(drafters, blocks): stack_latency(costs, alpha, drafters, blocks)
             for drafters, blocks in every_stack(4, 7)}
    assert len(tried) == 1 + 3 * 7 + 3 * 49 + 343
    found = best_stack(costs, alpha, 7)
    assert found.latency == pytest.approx(min(tried.values()), rel=1e-12)
    assert tried[found.drafters, found.blocks] == pytest.approx(found.latency, rel=1e-12)


def test_the_instances_need_stacks_of_every_size():
    sizes = {len(best_stack(*instance(seed), 7).drafters) for seed in range(25)}
    assert {1, 2} <= sizes
    assert best_stack((.9, 1.0), ((0, .3), (0, 0))).drafters == (), "drafting does not always pay"


def test_forwards_that_cost_more_by_width_shorten_the_blocks_and_the_programme_is_still_the_best():
    costs, alpha = instance(3)
    dear = [*costs[:-1], CostCurve((1, 20), (8,), ((1.0, 5.0),))]
    found = best_stack(dear, alpha, 6)
    assert found.latency == pytest.approx(min(stack_latency(dear, alpha, *one) for one in every_stack(4, 6)))
    assert found.blocks[-1] < best_stack(costs, alpha, 6).blocks[-1]


@pytest.mark.parametrize("alpha", [.3, .7, .9])
@pytest.mark.parametrize("c", [.02, .1, .2])
def test_with_one_drafter_the_best_block_is_the_best_depth_of_plain_speculation(alpha, c):
    found = best_stack((c, 1.0), ((0, alpha), (0, 0)), 32)
    assert found.blocks == (best_depth(alpha, c),)


def test_the_simple_formula_the_renewal_and_the_played_recursion_give_the_sheets_numbers():
    simple = stack_latency(COSTS, ALPHA, (0, 1), (5, 5))
    exact = renewal_latency(COSTS, ALPHA, (0, 1), (5, 5))
    assert simple == pytest.approx(.434, abs=5e-4)
    assert exact == pytest.approx(.4036, abs=5e-5)
    played = simulated_latency(COSTS, ALPHA, (0, 1), (5, 5), 400_000)
    assert played == pytest.approx(.4033, abs=1.5e-3)
    assert abs(played - exact) < abs(played - simple) / 10


@pytest.mark.parametrize(("drafters", "blocks"), [((0,), (4,)), ((0, 1), (2, 7)), ((1, 2), (6, 2)),
                                                  ((0, 1, 2), (3, 4, 6)), ((0, 1, 2), (1, 1, 1)), ((), ())])
def test_the_renewal_formula_is_the_mean_of_the_played_recursion(drafters, blocks):
    costs, alpha = instance(8)
    dear = [*costs[:-1], CostCurve((1, 20), (8,), ((1.0, 2.0),))]
    played = simulated_latency(dear, alpha, drafters, blocks, 150_000, seed=2)
    assert renewal_latency(dear, alpha, drafters, blocks) == pytest.approx(played, rel=.01)


def test_with_one_drafter_nothing_overshoots():
    costs, alpha = instance(4)
    for block in (1, 5):
        simple = stack_latency(costs, alpha, (2,), (block,))
        assert renewal_latency(costs, alpha, (2,), (block,)) == pytest.approx(simple)
    assert renewal_latency(costs, alpha, (), ()) == stack_latency(costs, alpha, (), ()) == 1.0


def test_the_laws_are_those_counted_by_hand():
    assert round_law(.5, {2: 1.0}) == pytest.approx({1: .5, 2: .25, 3: .25})
    assert round_law(.5, {1: .5, 2: .5}) == pytest.approx({1: .5, 2: .375, 3: .125})
    assert block_law({1: .5, 2: .5}, 2) == pytest.approx({2: .75, 3: .25})
    law = block_law(round_law(.9, {5: 1.0}), 5)
    assert sum(law.values()) == pytest.approx(1)
    assert min(law) == 5
    assert max(law) == 10
    mean = sum(n * prob for n, prob in round_law(.9, {5: 1.0}).items())
    assert mean == pytest.approx(expected_tokens(.9, 5))


def test_a_block_costs_its_tokens_and_one_forward_of_its_width():
    assert step_latency(.1, 1.0, 0.0, 4) == pytest.approx(1.4), "nothing accepted, one token of the verifier"
    assert step_latency(.1, 1.0, 1.0, 4) == pytest.approx(1.4 / 5)
    assert step_latency(.1, lambda width, context=None: width, 1.0, 4) == pytest.approx(5.4 / 5)


def test_the_gain_of_stacking_is_that_of_the_best_pair_over_the_best_single_drafter():
    costs, over = (.02, .2, 1.0), ((1, .9, .3), (.9, 1, .9), (.3, .9, 1))
    pair = min(renewal_latency(costs, over, (0, 1), (i, j)) for i in range(1, 7) for j in range(1, 7))
    single = min([1.0, *(renewal_latency(costs, over, (i,), (j,)) for i in (0, 1) for j in range(1, 7))])
    assert gain_of_stacking(costs, over, 6) == pytest.approx(single / pair)
    assert gain_of_stacking(costs, over, 6) > 1
    alike = ((1, .5, .5), (.5, 1, .5), (.5, .5, 1))
    assert gain_of_stacking((.02, .9, 1.0), alike, 6) < 1, "the middle level costs more than it saves"


def test_the_best_stack_with_overshoot_is_no_slower_than_the_programmes_choice():
    for seed in range(6):
        costs, alpha = instance(seed, 3)
        chosen = best_stack(costs, alpha, 6)
        exact = best_by_renewal(costs, alpha, 6)
        assert exact.latency <= renewal_latency(costs, alpha, chosen.drafters, chosen.blocks) + 1e-12
        assert exact.latency == pytest.approx(renewal_latency(costs, alpha, exact.drafters, exact.blocks))


def with_terms(seed: int, most: float = .05):
    """Costs with terms of every kind, the last model's among them, and acceptances."""
    costs, alpha = instance(seed)
    dice = random.Random(100 + seed)
    terms = [LevelTerms(*(dice.uniform(0, most) for _ in range(3)), dice.uniform(0, 3 * most)) for _ in costs]
    return [LevelCost(CostCurve((1, 20), (8,), ((cost, 1.5 * cost),)), own)
            for cost, own in zip(costs, terms, strict=True)], alpha


@pytest.mark.parametrize("seed", range(25))
def test_with_terms_too_the_programme_finds_what_trying_every_stack_finds(seed):
    costs, alpha = with_terms(seed)
    for j, found in enumerate(best_levels(costs, alpha, 6), 1):
        tried = {one: stack_latency(costs[:j], alpha, *one) for one in every_stack(j, 6)}
        assert found.latency == pytest.approx(min(tried.values()), rel=1e-12)
        assert tried[found.drafters, found.blocks] == pytest.approx(found.latency, rel=1e-12)


def test_what_is_read_makes_the_least_latency_of_a_level_a_part_of_no_best_stack_somewhere():
    # the middle model is faster over the small one, and yet the best stack is without the small one: it reads too long
    costs = [LevelCost(.01, LevelTerms(prompt=.3)), .3, 1.0]
    alpha = ((1, .9, .1), (.9, 1, .9), (.1, .9, 1))
    levels = best_levels([.01, .3, 1.0], alpha, 6)
    assert levels[1].drafters == (0,)
    assert levels[2].drafters == (0, 1)
    assert best_stack(costs, alpha, 6).drafters == (1,)


def test_terms_of_zero_change_nothing_and_every_other_term_adds_its_own():
    costs, alpha = instance(8)
    none = [LevelCost(cost) for cost in costs]
    for stack in (((), ()), ((1,), (3,)), ((0, 1, 2), (3, 4, 6))):
        assert stack_latency(none, alpha, *stack) == stack_latency(costs, alpha, *stack)
        assert renewal_round(none, alpha, *stack) == renewal_round(costs, alpha, *stack)
        assert simulated_latency(none, alpha, *stack, 50, 3) == simulated_latency(costs, alpha, *stack, 50, 3)
    assert best_levels(none, alpha, 7) == best_levels(costs, alpha, 7)
    dear = [LevelCost(.1, LevelTerms(.01, 0, .002, .003)), LevelCost(1.0, LevelTerms(.05, .04))]
    assert stack_latency(dear, ((1, .5), (.5, 1)), (0,), (2,)) == pytest.approx((.002 + 2 * .11 + 1.04) / 1.75 + .003)
    assert stack_latency(dear, ((1, .5), (.5, 1)), (), ()) == renewal_latency(dear, ((1, .5), (.5, 1)), (), ()) == 1.05
    assert step_latency(.1, dear[1], 1.0, 4, .2) == pytest.approx((.2 + .4 + 1.04) / 5)


@pytest.mark.parametrize(("drafters", "blocks"), [((0,), (4,)), ((0, 1), (2, 7)), ((0, 1, 2), (3, 4, 6)), ((), ())])
def test_with_terms_the_renewal_formula_is_the_mean_of_the_played_recursion(drafters, blocks):
    costs, alpha = with_terms(8, .2)
    played = simulated_latency(costs, alpha, drafters, blocks, 150_000, seed=2)
    assert renewal_latency(costs, alpha, drafters, blocks) == pytest.approx(played, rel=.01)
    if len(drafters) < 2:
        simple = stack_latency(costs, alpha, drafters, blocks)
        assert renewal_latency(costs, alpha, drafters, blocks) == pytest.approx(simple)
