"""Storing matrices small: what comes back, how far off it is, and how much room it takes."""

import pytest
import torch

from specdec_lib.checkpoints.quantize import four_bits, pack, relative_error, unpack

LAYER = {"qkv": (960, 576), "out": (576, 576), "gate_up": (3072, 576), "down": (576, 1536)}    # SmolLM2-135M


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def there_and_back(matrix, scheme, base=None):
    return unpack(*pack({"w": matrix}, {"w": scheme}, base), base)["w"]


def error(matrix, scheme, base=None):
    return relative_error(there_and_back(matrix, scheme, base), matrix)


def size(tensors):
    return sum(tensor.nbytes for tensor in tensors.values())


@pytest.mark.parametrize(("scheme", "limit"), [("int8", 0.01), ("int8/128", 0.008), ("int8/64", 0.007),
                                               ("int4/32", 0.09), ("float16", 3e-4), ("float32", 0)])
def test_rounding_errs_by_no_more_than_its_scheme_promises(scheme, limit):
    assert error(normal(70, 256), scheme) <= limit


def test_no_number_in_int8_is_off_by_more_than_half_a_step_of_its_own_group():
    matrix = normal(5, 192) * torch.tensor([1, 100.0, 1e-4]).repeat_interleave(64)
    off = (there_and_back(matrix, "int8/64") - matrix).abs().view(5, 3, 64)
    assert (off <= matrix.abs().view(5, 3, 64).amax(-1, keepdim=True) / 127 * 0.54).all()    # the scale is rounded


def test_whole_steps_of_a_float16_come_back_from_int8_exactly():
    whole = torch.tensor([[127.0, -3.0, 0.0, 64.0]])
    assert torch.equal(there_and_back(whole, "int8"), whole)


def test_smaller_groups_err_less_where_one_number_dominates_its_row():
    matrix = normal(16, 512)
    matrix[:, 7] *= 40
    assert error(matrix[:, 64:], "int8/64") < error(matrix, "int8/64") * 30
    assert error(matrix, "int8/64") < error(matrix, "int8") / 2


def test_four_bits_store_every_number_on_their_grid_exactly():
    grid = torch.arange(-8, 8).repeat(4, 2) * torch.tensor([0.5, -2, 1, 0.25])[:, None]
    assert torch.equal(there_and_back(grid, "int4/32"), grid)


def test_searching_the_range_beats_putting_the_largest_number_on_its_end():
    matrix = normal(64, 256)
    x = matrix.view(64, 8, 32)
    step = x.gather(-1, x.abs().argmax(-1, keepdim=True)) / -8
    plain = ((x / step).round().clamp(-8, 7) * step).view(64, 256)
    assert error(matrix, "int4/32") < 0.97 * relative_error(plain, matrix)


def test_a_difference_of_low_rank_comes_back_to_the_precision_of_its_factors():
    start = normal(60, 40)
    trained = start + 0.1 * normal(60, 3, seed=1) @ normal(3, 40, seed=2)
    back = there_and_back(trained, "+rank3", {"w": start}.__getitem__)
    assert relative_error(back - start, trained - start) < 0.015
    assert relative_error(there_and_back(trained, "+rank2", {"w": start}.__getitem__) - start, trained - start) > 0.1


def test_a_small_difference_in_four_bits_errs_by_its_own_size_and_not_by_the_matrix():
    start = normal(64, 64)
    trained = start + 0.01 * normal(64, 64, seed=1)
    assert error(trained, "+int4/32", {"w": start}.__getitem__) < 0.001 < error(trained, "int4/32")


def test_the_factors_are_the_nearest_of_their_rank():
    matrix = torch.diag(torch.tensor([8.0, 4.0, 2.0, 1.0]))
    expected = torch.diag(torch.tensor([8.0, 4.0, 0, 0]))
    assert (there_and_back(matrix, "rank2") - expected).abs().max() < 0.1


def test_more_rank_than_the_matrix_has_is_the_matrix():
    assert error(normal(6, 4), "rank64") < 0.02


@pytest.mark.parametrize(("scheme", "megabytes"), [("+rank64", 0.65), ("+int4/32", 2.0), ("int8/64", 3.66)])
def test_a_layer_of_smollm2_takes_the_planned_bytes(scheme, megabytes):
    state = {name: normal(*shape) for name, shape in LAYER.items()}
    tensors, _ = pack(state, {"*": scheme}, lambda name: torch.zeros(LAYER[name]))
    assert 0.8 * megabytes < size(tensors) / 1e6 < megabytes


@pytest.mark.parametrize("scheme", ["int8", "int8/64", "int4/32", "int4", "rank2"])
@pytest.mark.parametrize("shape", [(3, 1), (1, 7), (5, 33), (2, 97)])
def test_any_shape_comes_back_as_it_was(scheme, shape):
    assert there_and_back(normal(*shape), scheme).shape == shape


@pytest.mark.parametrize("scheme", ["int8/64", "int4/32", "rank2"])
def test_zeros_stay_zeros(scheme):
    assert not there_and_back(torch.zeros(4, 64), scheme).any()


def test_a_group_of_zeros_is_divided_by_no_zero():
    assert torch.equal(four_bits(torch.zeros(1, 1, 2), torch.zeros(1, 1)), torch.zeros(1, 1, 2))


def test_ids_come_back_whole_as_int64_and_vectors_as_float32():
    state = {"ids": torch.tensor([3, 49151]), "norm": normal(8), "fc": normal(4, 8)}
    back = unpack(*pack(state, {}))
    assert torch.equal(back["ids"], state["ids"])
    assert back["ids"].dtype == torch.int64
    assert torch.equal(back["norm"], state["norm"])
    assert back["fc"].dtype == torch.float32


def test_the_first_pattern_that_fits_a_name_counts():
    _, about = pack({"layers.0.qkv": normal(4, 4), "fc": normal(4, 4)}, {"layers.*": "rank1", "*": "int8"})
    assert [entry["scheme"] for entry in about.values()] == ["rank1", "int8"]


@pytest.mark.parametrize(("state", "plan", "word"), [
    ({"w": normal(4, 4)}, {"w": "int3"}, "no scheme"), ({"w": normal(4, 4)}, {"w": "rank"}, "no scheme"),
    ({"w": normal(4, 4)}, {"w": "+rank1"}, "no base"), ({"w": normal(4)}, {"w": "int8"}, "no matrix"),
    ({"w": normal(4, 8)}, {"w": "int4/3"}, "even"), ({"w": torch.tensor([1.0, torch.nan])}, {}, "not finite"),
    ({"w": torch.tensor([1e6])}, {"w": "float16"}, "too large")])
def test_what_cannot_be_stored_is_refused_in_a_sentence(state, plan, word):
    with pytest.raises(ValueError, match=word):
        pack(state, plan)
