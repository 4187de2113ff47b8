"""Two ways to attend give one result, and plain products meet few shapes."""

import pytest
import torch

from specdec_lib.models.llama.attention import STEP, attend, hidden_block, use_plain_products, widened, widened_mask
from specdec_lib.models.llama.forward import view_of
from specdec_lib.types import ROOT

CPU = torch.device("cpu")
HEADS, KV_HEADS, D = 6, 2, 8
TREE = (ROOT, 0, ROOT, 2, 2)


@pytest.mark.parametrize("columns", [5, 63, 64, 65, 100])
@pytest.mark.parametrize("parents", [TREE, (ROOT, 0, 1, 2, 3)])
def test_plain_products_over_widened_columns_equal_the_fused_kernel_over_the_real_ones(columns, parents):
    torch.manual_seed(columns)
    q, k, v = (torch.randn(heads, rows, D, dtype=torch.float64)
               for heads, rows in ((HEADS, 5), (KV_HEADS, 128), (KV_HEADS, 128)))
    block = hidden_block(parents, 0, 5, False, torch.float64, CPU)
    fused = attend(q, k[:, :columns], v[:, :columns], block, widened_mask(block, 5, columns, HEADS // KV_HEADS), False)
    wide, stop = widened(block, 5, columns, 128, torch.float64)
    assert stop == (64 if columns <= 64 else 128)
    assert torch.allclose(attend(q, k[:, :stop], v[:, :stop], wide, None, True), fused, atol=1e-12)


def test_rows_that_see_everything_do_not_see_what_was_added():
    block, stop = widened(None, 2, 70, 512, torch.bfloat16)
    assert stop == 128
    assert block.tolist() == [[float("-inf")] * 58] * 2


def test_no_more_columns_are_added_than_the_cache_has():
    block, stop = widened(None, 2, 70, 100, torch.bfloat16)
    assert (stop, block.shape[1]) == (100, 30)
    assert widened(None, 2, 100, 100, torch.bfloat16) == (None, 100)


def test_a_growing_context_meets_a_new_shape_once_in_a_step():
    """oneDNN builds a kernel for each new shape: that cost a draft level half its time."""
    views = [view_of(slice(n - 7, n), *torch.zeros(2, 7, D, dtype=torch.bfloat16), None, 3, 4096)
             for n in range(600, 600 + 2 * STEP)]
    assert all(view.plain for view in views)
    assert len({view.stop for view in views}) == 3
    assert all(0 <= view.stop - n < STEP for view, n in zip(views, range(600, 728), strict=True))


@pytest.mark.parametrize(("rows", "columns", "dtype", "plain"), [
    (1, 500, torch.bfloat16, False), (1, 700, torch.bfloat16, True), (7, 200, torch.bfloat16, False),
    (7, 400, torch.bfloat16, True), (7, 400, torch.float32, False), (100, 700, torch.bfloat16, False)])
def test_plain_products_are_for_a_few_rows_over_many_columns_in_half_precision(rows, columns, dtype, plain):
    assert use_plain_products(rows, columns, dtype, CPU) is plain
    assert not use_plain_products(rows, columns, dtype, torch.device("cuda"))
