"""Lenient rules on numbers made up by hand, and the standing of a token in scores."""

import math

import pytest
import torch

from specdec_lib.acceptance import ExactOnly, RankMargin, TargetStanding, Typical, standing, standings, top_beta
from specdec_lib.models.table import Table
from specdec_lib.sampling import Sampling
from specdec_lib.scores import Categorical, RowStats, Scores
from specdec_lib.types import Draft, Refusal

PROBS = (.4, .3, .2, .06, .04)
ENTROPY = -sum(p * math.log(p) for p in PROBS)


def stands(place: int) -> TargetStanding:
    return TargetStanding(PROBS[place], PROBS[0], place + 1, ENTROPY)


def test_rank_margin_takes_what_is_in_the_first_ranks_and_near_the_best():
    assert [RankMargin(3, 0.5)(stands(place)) for place in range(5)] == [True, True, True, False, False]
    assert [RankMargin(2, 0.5)(stands(place)) for place in range(5)] == [True, True, False, False, False]
    assert [RankMargin(3, 0.6)(stands(place)) for place in range(5)] == [True, True, False, False, False]
    assert [RankMargin(5, 0.05)(stands(place)) for place in range(5)] == [True] * 5


def test_typical_takes_the_smaller_of_its_two_bounds():
    steep = 0.3 * math.exp(-ENTROPY)
    assert 0.06 < steep < 0.09                     # a flat distribution: here the second bound is the smaller one
    assert [Typical()(stands(place)) for place in range(5)] == [True, True, True, False, False]
    assert [Typical(eps=0.05)(stands(place)) for place in range(5)] == [True, True, True, True, False]
    assert not Typical()(TargetStanding(0.09, 0.9, 2, 0.3))
    assert Typical()(TargetStanding(0.0901, 0.9, 2, 0.3))


@pytest.mark.parametrize("seed", range(20))
def test_the_best_token_is_always_typical(seed):
    dist = torch.softmax(torch.randn(50, generator=torch.Generator().manual_seed(seed)) * (1 + seed % 5), 0)
    best, entropy = float(dist.max()), float(torch.special.entr(dist).sum())
    assert Typical(1.0, 0.99)(TargetStanding(best, best, 1, entropy))


@pytest.mark.parametrize("rule", [Typical(), Typical(0.3, 0.09), Typical(0.5, 0.95), Typical(1.0, 0.6)], ids=str)
def test_as_the_temperature_rises_tokens_join_those_that_pass_and_none_leaves(rule):
    grown = set()
    for seed in range(10):
        logits = torch.randn(30, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
        before: set[int] = set()
        for step in range(1, 100):
            seen = standings(Sampling(temperature=step / 20).distribution(logits), range(30))
            now = {token for token in range(30) if rule(seen[token])}
            assert before <= now
            before = now
        grown.add(len(before))
    assert max(grown) > 5


@pytest.mark.parametrize(("beta", "tolerance"), [(1, 1.0), (2, 0.5), (3, 1.0), (4, 2.0), (5, 3.0), (5, 0.0)])
def test_top_beta_is_rank_margin_with_a_gap_of_logits_for_a_ratio(beta, tolerance):
    rule, best = top_beta(beta, tolerance), math.log(PROBS[0])
    assert rule == RankMargin(beta, math.exp(-tolerance))
    passes = [place < beta and best - math.log(p) <= tolerance for place, p in enumerate(PROBS)]
    assert [rule(stands(place)) for place in range(5)] == passes


def test_strict_takes_nothing_but_what_the_target_chose():
    assert not any(ExactOnly()(stands(place)) for place in range(5))


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_a_standing_is_read_from_the_softmax_at_the_temperature_asked_for(temperature):
    dist = torch.tensor(PROBS, dtype=torch.float64) ** (1 / temperature)
    dist = dist / dist.sum()
    seen = standing(Table({(): PROBS})((), Draft()), 0, 2, temperature)
    assert seen.rank == 3
    assert seen[:2] == pytest.approx((float(dist[2]), float(dist[0])), abs=1e-12)
    assert seen.entropy == pytest.approx(float(torch.special.entr(dist).sum()), abs=1e-12)


def test_standings_are_those_of_the_distribution_itself_with_its_filters():
    logits = Table({(): PROBS})((), Draft()).logits[0]
    first, last = standings(Sampling(temperature=1.0, top_k=2).distribution(logits), (1, 4))
    assert first == pytest.approx((3 / 7, 4 / 7, 2, math.log(7) - 3 / 7 * math.log(3) - 4 / 7 * math.log(4)))
    assert last[0] == 0
    assert last.rank == 3
    only, other = standings(Categorical.point_mass(7), (7, 3))
    assert only == TargetStanding(1.0, 1.0, 1, 0.0)
    assert other == TargetStanding(0.0, 1.0, 2, 0.0)
    same = standings(Sampling(temperature=0.5).distribution(logits), (2,))[0]
    assert same == pytest.approx(standing(Scores(logits[None]), 0, 2, 0.5))


def test_a_recorded_row_keeps_the_probabilities_of_the_whole_vocabulary():
    top = RowStats(torch.tensor([[7, 3]]), torch.tensor([[2.0, 1.0]]), (0,), (2.5,), (1.25,))
    logits = torch.full((1, 9), float("-inf")).scatter(1, top.ids, top.logits)
    seen = standing(Scores(logits, row_stats=wide(top)), 0, 3)
    assert seen == pytest.approx((math.exp(-1.5), math.exp(-.5), 2, 1.25))


def wide(top: RowStats) -> RowStats:
    """The same with eight columns, as many as the loop remembers."""
    pad = torch.full((1, 6), -1), torch.full((1, 6), float("-inf"))
    return RowStats(torch.cat([top.ids, pad[0]], 1), torch.cat([top.logits, pad[1]], 1), top.rows, top.lse, top.entropy)


@pytest.mark.parametrize("wrong", [lambda: RankMargin(0), lambda: RankMargin(3, 1.5), lambda: RankMargin(3, -.1),
                                   lambda: Typical(eps=2.0), lambda: Typical(delta=-1.0), lambda: top_beta(0),
                                   lambda: top_beta(3, -1.0), lambda: top_beta(3, math.nan)])
def test_bounds_that_mean_nothing_are_refused(wrong):
    with pytest.raises(Refusal):
        wrong()
