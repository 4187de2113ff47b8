"""Memory in large pages is memory like any other: aligned, apart, and kept as long as a tensor needs it."""

import gc
import mmap
import weakref

import pytest
import torch

from specdec_lib.models import large_pages
from specdec_lib.models.large_pages import BLOCK, LINE, PAGE, SMALL, copied, in_large_pages

DTYPES = [torch.uint8, torch.bfloat16, torch.float32, torch.int16]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(large_pages, "rest", torch.empty(0, dtype=torch.uint8))
    linux_alone = getattr(mmap, "MADV_HUGEPAGE", -1)
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", linux_alone, raising=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(0,), (3,), (7, 5), (SMALL, 3), (129, 257, 3), (BLOCK // 2 + 1, 5)])
def test_a_tensor_has_its_size_and_dtype_and_can_be_written(size, dtype):
    found = in_large_pages(size, dtype)
    assert (found.shape, found.dtype, found.is_contiguous()) == (torch.Size(size), dtype, True)
    assert bool((found.fill_(3) == 3).all())


def test_tensors_begin_at_a_line_and_lie_apart():
    sizes = [SMALL + odd for odd in (0, 1, 63, 64, 65)]
    found = [in_large_pages((size,), torch.uint8).fill_(i) for i, size in enumerate(sizes)]
    assert all(one.data_ptr() % LINE == 0 for one in found)
    assert all(bool((one == i).all()) for i, one in enumerate(found))


def test_a_block_begins_with_a_large_page_and_small_tensors_take_none_of_it():
    first = in_large_pages((SMALL,), torch.uint8)
    assert first.data_ptr() % PAGE == 0
    in_large_pages((SMALL - 1,), torch.uint8)
    assert in_large_pages((SMALL,), torch.uint8).data_ptr() == first.data_ptr() + SMALL


def test_a_block_lives_as_long_as_its_last_tensor(monkeypatch):
    made, plain = [], mmap.mmap

    class Watched(plain):
        pass

    def watched(*given, **more):
        made.append(weakref.ref(one := Watched(*given, **more)))
        return one

    monkeypatch.setattr(mmap, "mmap", watched)
    first, second = (in_large_pages((SMALL,), torch.uint8) for _ in range(2))
    large_pages.rest = torch.empty(0, dtype=torch.uint8)
    del first
    gc.collect()
    assert [one() is not None for one in made] == [True]
    del second
    gc.collect()
    assert [one() for one in made] == [None]


def test_a_system_without_large_pages_gives_usual_ones(monkeypatch):
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", -1)           # advice that no kernel knows
    assert bool((in_large_pages((SMALL,), torch.uint8).fill_(5) == 5).all())
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    assert bool((in_large_pages((SMALL,), torch.uint8).fill_(6) == 6).all())


def test_a_copy_holds_the_same_numbers():
    numbers = torch.randn(300, 500, generator=torch.Generator().manual_seed(0)).T
    assert torch.equal(copied(numbers), numbers)
    assert copied(numbers).is_contiguous()
