"""The rule on densities is exact: known distributions in one dimension, and the traps that are not exact."""

import math

import pytest
import torch

from specdec_lib.continuous import line
from specdec_lib.continuous.densities import GaussianMixture, gaussian
from specdec_lib.continuous.line import GaussianChain, overlap, two_chains, two_gaussians
from specdec_lib.continuous.quality import energy_test, ks_distance, ks_limit
from specdec_lib.continuous.rule import CODE, EXACT, PATHS, PUBLISHED, DensityRule, accepted, log_ratio, residual

P, Q = (0.3, 0.8), (0.0, 1.0)
COUNT = 400_000
TARGET, DRAFT = GaussianChain(0.3, 0.8), GaussianChain(0.0, 1.0, 1.2)


@pytest.fixture(scope="module")
def world():
    return two_gaussians(P, Q, COUNT, seed=1)


def normal(mean: float, scale: float, count: int = COUNT, seed: int = 77) -> torch.Tensor:
    return mean + scale * torch.randn(count, generator=torch.Generator().manual_seed(seed))


def test_what_is_emitted_in_one_dimension_has_the_targets_distribution(world):
    assert ks_distance(world.values, normal(*P)) < ks_limit(COUNT, COUNT)
    assert ks_distance(world.values, normal(*Q)) > 20 * ks_limit(COUNT, COUNT), "the distance sees the draft's"


def test_acceptance_is_the_overlap_and_the_mean_tries_are_its_inverse_distance_from_one(world):
    assert overlap(P, Q) == pytest.approx(0.839, abs=1e-3)
    assert world.acceptance == pytest.approx(overlap(P, Q), abs=4 * math.sqrt(0.839 * 0.161 / COUNT))
    assert world.mean_tries == pytest.approx(1 / (1 - overlap(P, Q)), rel=0.02)
    assert world.mean_tries == pytest.approx(6.22, abs=0.1)


def mixtures(count: int) -> tuple[GaussianMixture, GaussianMixture, torch.Tensor]:
    """p, q and values drawn from q, in three dimensions with three components."""
    dice = torch.Generator().manual_seed(3)
    p, q = (GaussianMixture(torch.randn(3, generator=dice).log_softmax(0), torch.randn(3, 3, generator=dice),
                            0.3 * torch.randn(3, 3, generator=dice) - 0.3) for _ in range(2))
    return p, q, draws_of(q, count, 5)


def draws_of(density: GaussianMixture, count: int, seed: int) -> torch.Tensor:
    dice = torch.Generator().manual_seed(seed)
    return density.draw(torch.randn(count, 3, generator=dice), torch.rand(count, generator=dice))


def test_mixtures_in_three_dimensions_agree_with_plain_draws_in_each_and_together():
    p, q, drafted = mixtures(20_000)
    dice = torch.Generator().manual_seed(6)
    kept = accepted(p, q, drafted, torch.rand(len(drafted), generator=dice))
    where = (~kept).nonzero()[:, 0]
    one = p.map(lambda part: part.expand(len(where), *part.shape)), q.map(lambda part: part.expand(len(where),
                                                                                                   *part.shape))
    drafted[where] = residual(*one, lambda start, count, rows: (
        torch.randn(len(rows), count, 3, generator=dice), torch.rand(len(rows), count, generator=dice),
        torch.rand(len(rows), count, generator=dice)), len(where), 3)[0]
    plain = draws_of(p, 20_000, 9)
    assert 0.1 < float(kept.float().mean()) < 0.9
    for dim in range(3):
        assert ks_distance(drafted[:, dim], plain[:, dim]) < ks_limit(20_000, 20_000)
    assert energy_test(drafted[:500], plain[:500], 199).p_value > 0.01
    assert energy_test(draws_of(q, 500, 11), plain[:500], 199).p_value < 0.01, "the test tells the draft from it"


def test_a_mixtures_density_is_that_of_its_draws():
    p, _, _ = mixtures(1)
    dice = torch.Generator().manual_seed(2)
    x = 12 * torch.rand(400_000, 3, generator=dice, dtype=torch.float64) - 6
    inside = p.log_density(x).exp()
    assert float(inside.mean()) * 12 ** 3 == pytest.approx(1, abs=0.05)
    mean = (p.log_weights.exp()[:, None] * p.means).sum(0)
    assert torch.allclose(draws_of(p, 200_000, 4).mean(0), mean, atol=0.01)


@pytest.mark.parametrize("aligned", [True, False])
def test_a_denoising_chain_is_kept_exactly_with_its_own_noise_and_with_the_drafts(aligned):
    found = two_chains(TARGET, DRAFT, 60_000, aligned)
    assert ks_distance(found.values, normal(*TARGET.law())) < ks_limit(60_000, COUNT)


def test_alignment_raises_acceptance_by_more_than_two():
    together, apart = (two_chains(TARGET, DRAFT, 20_000, aligned).acceptance for aligned in (True, False))
    assert together > 2 * apart


@pytest.mark.parametrize("rule", [DensityRule(factor=PATHS, tries=100), DensityRule(factor=CODE, tries=100),
                                  DensityRule(softening=42, tries=100), DensityRule(last_noise=False),
                                  DensityRule(tries=1), PUBLISHED], ids=str)
def test_every_departure_of_the_published_code_changes_the_distribution(rule):
    assert not rule.lossless
    found = two_chains(TARGET, DRAFT, 60_000, rule=rule)
    assert ks_distance(found.values, normal(*TARGET.law())) > ks_limit(60_000, COUNT)


def test_the_ratio_of_two_aligned_paths_is_the_product_of_draft_over_target_sigmas():
    noise = DRAFT.draw(5, torch.Generator().manual_seed(0))
    p, q = TARGET.density(noise), DRAFT.density(noise)
    x = q.draw(noise[:, -1], noise[:, -1, 0])
    steps = range(1, len(DRAFT.schedule.beta))
    paths = sum(path_log_density(chain, noise, steps) * sign for chain, sign in ((TARGET, 1), (DRAFT, -1)))
    assert torch.allclose(log_ratio(p, q, x, DensityRule(factor=PATHS, tries=1)) - log_ratio(p, q, x), paths, atol=1e-4)
    jacobian = sum((TARGET.sigma(step) / DRAFT.sigma(step)).log() for step in steps)
    assert torch.allclose(paths + jacobian, torch.zeros(5), atol=1e-4), "the Jacobian of the map of paths cancels it"


def path_log_density(chain: GaussianChain, noise: torch.Tensor, steps: range) -> torch.Tensor:
    """The log-density of a chain's own path under its own steps, from their Gaussians."""
    x, total = noise[:, 0], torch.zeros(len(noise))
    for row, step in enumerate(reversed(steps), 1):
        mean = chain.step(x, step)
        x = mean + chain.sigma(step) * noise[:, row]
        total += torch.distributions.Normal(mean, chain.sigma(step)).log_prob(x)[:, 0]
    return total


def test_the_law_of_a_chain_is_where_it_ends():
    noise = TARGET.draw(100_000, torch.Generator().manual_seed(8))
    ends = TARGET.density(noise).draw(noise[:, -1], noise[:, -1, 0])[:, 0]
    assert ks_distance(ends, normal(*TARGET.law())) < ks_limit(100_000, COUNT)


def test_the_default_alone_is_called_lossless_and_wrong_settings_are_named():
    assert EXACT.lossless
    assert not DensityRule(tries=100).lossless
    for wrong in ({"softening": 0.0}, {"factor": "sigma"}, {"tries": 0}, {"softening": 42.0}):
        with pytest.raises(ValueError, match="tries|softening"):
            DensityRule(**wrong)
    with pytest.raises(ValueError, match="mixture"):
        gaussian(0.0, 1.0).log_density(torch.zeros(1, 1), 42.0)


def test_a_residual_that_does_not_exist_ends_with_an_error(monkeypatch):
    monkeypatch.setattr("specdec_lib.continuous.rule.MOST", 64)
    p = gaussian(0.0, 1.0).map(lambda part: part[None])
    dice = torch.Generator().manual_seed(0)
    with pytest.raises(ArithmeticError, match="equal"):
        residual(p, p, lambda start, count, rows: (torch.randn(len(rows), count, 1, generator=dice),
                                                   torch.rand(len(rows), count, generator=dice),
                                                   torch.rand(len(rows), count, generator=dice)), 1, 1)


def test_zeros_stand_where_no_proposal_was_taken():
    found = two_chains(TARGET, DRAFT, 20_000, rule=DensityRule(tries=1))
    rejected = found.values[~found.kept]
    assert 0.1 < float((rejected == 0).float().mean()) < 0.9
    assert set(found.tries.tolist()) == {1}


def test_the_numerical_overlap_is_that_of_the_closed_form():
    apart = overlap((0.0, 1.0), (1.0, 1.0))
    assert apart == pytest.approx(math.erfc(0.5 / math.sqrt(2)), abs=1e-6)
    assert line.overlap(P, P) == pytest.approx(1, abs=1e-6)
