"""Muon's steps for matrices and vectors."""

import pytest
import torch

from specdec_lib.training import muon
from specdec_lib.training.muon import Muon, orthogonal, products_dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_singular_values_come_close_to_one_whatever_they_were(dtype):
    dice = torch.Generator().manual_seed(0)
    for shape in ((8, 20), (20, 8), (16, 16)):
        u, _, v = torch.linalg.svd(torch.randn(shape, generator=dice), full_matrices=False)
        matrix = u @ torch.diag(torch.logspace(0, -1.5, min(shape))) @ v
        values = torch.linalg.svdvals(orthogonal(matrix, dtype=dtype))
        assert values.min() > 0.4, values
        assert values.max() < 1.35, values


def test_a_processor_without_kernels_for_bfloat16_multiplies_in_float32(monkeypatch):
    matrix = torch.randn(8, 20, generator=torch.Generator().manual_seed(0))
    for fast, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(muon, "bfloat16_is_fast", lambda fast=fast: fast)
        assert products_dtype(torch.device("cpu")) == dtype
        assert products_dtype(torch.device("cuda")) == torch.bfloat16
        assert torch.equal(orthogonal(matrix), orthogonal(matrix, dtype=dtype))
        assert orthogonal(matrix).dtype == torch.float32
    assert not torch.equal(orthogonal(matrix, dtype=torch.bfloat16), orthogonal(matrix, dtype=torch.float32))


def test_a_step_has_the_size_of_its_rate_and_descends():
    weight = torch.nn.Parameter(torch.zeros(12, 30))
    gradient = torch.randn(12, 30, generator=torch.Generator().manual_seed(1))
    weight.grad = gradient.clone()
    Muon([weight], lr=0.01).step()
    assert (weight * gradient).sum() < 0
    size = weight.detach().pow(2).mean().sqrt()                # 0.2 sqrt(30) / sqrt(30) for singular values of one
    assert 0.6 * 0.002 < size < 1.4 * 0.002


def test_a_vector_takes_adams_step():
    mine, theirs = (torch.nn.Parameter(torch.ones(5)) for _ in range(2))
    ours, adam = Muon([mine], lr=0.1), torch.optim.Adam([theirs], lr=0.1, betas=(0.95, 0.95))
    for step in range(3):
        for parameter, optimiser in ((mine, ours), (theirs, adam)):
            parameter.grad = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.1]) * (step + 1)
            optimiser.step()
    torch.testing.assert_close(mine, theirs)


def test_it_minimises_a_badly_scaled_quadratic():
    weight = torch.nn.Parameter(torch.ones(4, 6))
    scales = torch.logspace(0, -2, 4)[:, None]
    optimiser = Muon([weight], lr=0.1)
    for step in range(300):
        optimiser.param_groups[0]["lr"] = 0.1 * (1 - step / 300)
        optimiser.zero_grad()
        loss = (scales * weight.square()).sum()
        loss.backward()
        optimiser.step()
    assert loss < 0.02 * 6 * scales.sum()                      # where it started


def test_a_step_differs_from_torchs_muon_by_a_few_per_cent_of_its_norm():
    dice = torch.Generator().manual_seed(0)
    for shape in ((8, 20), (64, 96), (96, 64)):
        gradient = torch.randn(shape, generator=dice)
        ours, theirs = (torch.nn.Parameter(torch.zeros(shape)) for _ in range(2))
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        Muon([ours], lr=1.0).step()
        torch.optim.Muon([theirs], lr=1.0, weight_decay=0.0, adjust_lr_fn="match_rms_adamw").step()
        assert 0.01 < (ours - theirs).norm() / ours.norm() < 0.08      # below: torch rounds as ours does, so use it
