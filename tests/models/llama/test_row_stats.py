"""Statistics of rows in C are torch's in double precision, and of equal logits the first comes first."""

import math

import pytest
import torch

from specdec_lib.models.llama import row_stats
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.greedy_chain import greedy_chain
from specdec_lib.models.llama.row_stats import compiled_stats, packed_stats, row_stats_of, tells
from specdec_lib.types import Draft
from tests.models.llama.test_joint import SHAPE

both = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def logits(rows: int, columns: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return (4 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))).to(dtype)


def expected(x: torch.Tensor, ids: torch.Tensor | None, k: int) -> torch.Tensor:
    """Sorted stably, so that of equals the first column is first."""
    wide = x.double()
    value, column = wide.sort(dim=-1, descending=True, stable=True)
    logp = wide - wide.logsumexp(-1, keepdim=True)
    entropy = torch.special.entr(logp.exp()).sum(-1, keepdim=True)
    column = column[:, :k] if ids is None else ids[column[:, :k]]
    return torch.cat((value[:, :k], column.double(), wide.logsumexp(-1, keepdim=True), entropy), 1)


@both
@pytest.mark.parametrize("ids", [False, True], ids=["columns", "ids"])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (2, 128), (5, 300), (4, 1025), (9, 49152)])
def test_they_are_those_of_torch_in_double_precision(size, ids, dtype):
    x, k = logits(*size, dtype), min(8, size[1])
    names = torch.randperm(size[1], generator=torch.Generator().manual_seed(1)) + 7 if ids else None
    found, want = packed_stats(x, names), expected(x, names, k)
    across = packed_stats(x.T.contiguous().T, names)             # a column's numbers lie together
    assert torch.allclose(across[:, 2 * k:], found[:, 2 * k:], atol=1e-5)
    assert torch.equal(across[:, :k], found[:, :k])
    assert compiled_stats(dtype) is None or torch.equal(found[:, :2 * k], want[:, :2 * k])
    assert (found[:, 2 * k:] - want[:, 2 * k:]).abs().max() < 1e-5


@both
def test_of_equal_logits_the_first_columns_come_first(dtype):
    if compiled_stats(dtype) is None:
        return
    x = torch.zeros(2, 600, dtype=dtype)
    x[1, [70, 300, 301, 599]] = 1.0
    assert packed_stats(x, None, 6)[:, 6:12].tolist() == [[0, 1, 2, 3, 4, 5], [70, 300, 301, 599, 0, 1]]


@both
def test_a_logit_of_minus_infinity_has_no_weight(dtype):
    x = logits(3, 400, dtype, 2)
    x[:, ::3] = -torch.inf
    x[2] = -torch.inf
    x[2, 7] = 5.0
    found, finite = packed_stats(x, None, 4), x[:2][x[:2] > -torch.inf].view(2, -1).double()
    assert torch.allclose(found[:2, -2], finite.logsumexp(-1), atol=1e-5)
    assert found[2, [0, 4, 8]].tolist() == [5.0, 7.0, 5.0]
    assert abs(float(found[2, 9])) < 1e-6


@both
def test_a_row_has_the_same_statistics_alone_and_among_others_with_one_thread_and_two(dtype):
    x, threads = logits(12, 9000, dtype, 3), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = torch.cat([packed_stats(row[None], None) for row in x])
        for count in (1, 2):
            torch.set_num_threads(count)
            assert torch.equal(packed_stats(x, None), alone)
            assert torch.equal(packed_stats(x[:, :8990], None), packed_stats(x[:, :8990].clone(), None))
    finally:
        torch.set_num_threads(threads)


def test_other_dtypes_and_machines_without_a_compiler_take_torchs_kernels(monkeypatch):
    assert compiled_stats(torch.float64) is None
    assert not tells(torch.device("cpu"), torch.float64)
    assert tells(torch.device("cuda"), torch.float64)
    x = logits(3, 300, torch.float32, 4)
    own = packed_stats(x, None)
    monkeypatch.setattr(row_stats, "compiled_stats", lambda dtype: None)
    assert not tells(torch.device("cpu"), torch.float32)
    assert (packed_stats(x, None) - own).abs().max() < 1e-5


@both
def test_a_model_hands_them_with_its_scores_in_single_precision(dtype, words):
    lm = Transformer.random(SHAPE, seed=3, dtype=dtype)
    scores = lm(words(9), Draft((4, 5), (-1, 0)))
    plain = row_stats_of(scores.logits, None)
    told = scores.row_stats((0, 2))
    assert told.logits.dtype == torch.float32
    assert torch.equal(told.ids, plain.ids)
    assert told.lse == pytest.approx((plain.lse[0], plain.lse[2]), abs=1e-5)
    assert scores.best == tuple(scores.logits.argmax(-1).tolist())
    for captured in (Transformer(lm.weights, static=True)(words(9), Draft()),
                     greedy_chain(Transformer(lm.weights, static=True), words(9), 2)):
        assert captured.logits.dtype == captured.row_stats((0,)).logits.dtype == torch.float32


def test_an_entropy_that_is_no_number_stays_none_and_one_below_zero_is_zero():
    packed = torch.tensor([[2.0, 1.0, 5.0, 6.0, 2.3, math.nan], [2.0, 1.0, 5.0, 6.0, 2.3, -1e-12]], dtype=torch.float64)
    stats = row_stats.unpacked(packed, torch.float32)
    assert math.isnan(stats.entropy[0])
    assert stats.entropy[1] == 0
    assert (stats.ids.tolist(), stats.logits.dtype) == ([[5, 6], [5, 6]], torch.float32)
