"""Batches hold every example once and little padding, in an order that a seed repeats."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.training.data.batches import Batch, grouped, order, padded, place_seed
from specdec_lib.training.data.examples import Example
from tests.training.tiny import tiny_examples


def sized(*sizes: int) -> list[Example]:
    return [Example((1,), (2,) * (size - 1)) for size in sizes]


def blank(start: list[int], stop: list[int], size: int) -> Batch:
    none = torch.zeros(len(start), size, 1)
    return Batch(none[..., 0].long(), torch.tensor(start), torch.tensor(stop), {}, none.long(), none)


@pytest.mark.parametrize("seed", [20260722123456, 2 ** 63 - 1, 1 - 2 ** 63])
def test_a_seed_of_63_bits_gives_each_epoch_an_order_of_its_own(seed):
    assert len({tuple(order(50, epoch, seed)) for epoch in range(5)}) == 5
    assert order(50, 1, seed) == order(50, 1, seed)
    assert [place_seed(small, 7) for small in (0, 1, -2)] == [7, 1_000_010, -1_999_999]    # as they always were


@pytest.mark.parametrize("tokens", [20, 33, 1000])
def test_no_group_has_more_padded_tokens_than_asked_for(tokens):
    data = tiny_examples(40, output=(4, 15))
    for group in grouped(data, tokens):
        assert len(group) * max(len(data[i]) for i in group) <= tokens


@pytest.mark.parametrize("tokens", [1, 20, 1000])
def test_every_example_is_in_exactly_one_group(tokens):
    data = tiny_examples(40)
    assert sorted(i for group in grouped(data, tokens) for i in group) == list(range(40))


def test_groups_are_filled_with_neighbours_in_length():
    assert grouped(sized(6, 2, 3, 2, 6), 12) == [(1, 3, 2), (0, 4)]


def test_an_example_longer_than_a_batch_is_a_batch_of_its_own():
    assert grouped(sized(3, 50, 3), 10) == [(0, 2), (1,)]


def test_no_examples_make_no_groups():
    assert grouped([], 10) == []


def test_the_order_follows_from_seed_and_epoch_alone():
    torch.manual_seed(0)
    once = order(50, 3, 7)
    torch.manual_seed(1)
    assert order(50, 3, 7) == once
    assert sorted(once) == list(range(50))
    others = [order(50, 4, 7), order(50, 3, 8), order(50, 7, 3)]
    assert all(other != once for other in others)


def test_an_order_does_not_use_the_global_random_numbers():
    torch.manual_seed(0)
    untouched = torch.rand(1)
    torch.manual_seed(0)
    order(10, 0, 0)
    assert torch.equal(torch.rand(1), untouched)


def test_rows_are_padded_with_zeros_on_the_right():
    assert padded([torch.tensor([5]), torch.tensor([6, 7, 8])]).tolist() == [[5, 0, 0], [6, 7, 8]]


def test_a_token_may_be_drafted_from_every_row_before_it_if_the_answer_holds_it():
    batch = blank([2, 3], [4, 6], 6)               # answers are tokens 2, 3 and 3, 4, 5
    assert [row.nonzero().flatten().tolist() for row in batch.drafted(1)] == [[1, 2], [2, 3, 4]]
    assert [row.nonzero().flatten().tolist() for row in batch.drafted(3)] == [[0], [0, 1, 2]]


def test_later_moves_what_stood_ahead_and_leaves_zeros_behind():
    batch, values = blank([1], [4], 4), torch.tensor([[[1], [2], [3], [4]]])
    assert [batch.later(values, ahead).flatten().tolist() for ahead in (0, 1, 3, 4, 9)] == [
        [1, 2, 3, 4], [2, 3, 4, 0], [4, 0, 0, 0], [0] * 4, [0] * 4]


def test_moving_a_batch_keeps_all_of_it():
    batch = replace(blank([1], [4], 4), seed=7)
    there, names = batch.to("meta"), ("tokens", "start", "stop", "top_ids", "top_logp")
    assert all(getattr(there, name).device.type == "meta" for name in names)
    assert there.top_logp.shape == batch.top_logp.shape
    assert there.seed == 7
