"""Codes that a checkpoint was made from are found again bit for bit; other weights are rounded and say so."""

import gguf
import pytest
import torch

from specdec_lib.models.llama.group_codes import GROUP, codes_of, joined

KINDS = {"Q4_0": (2, 4), "Q4_1": (4, 4), "Q8_0": (2, 8)}        # bytes before the codes of a block, and bits
SIZE = 40, 96


def matrix(seed: int, *size: int) -> torch.Tensor:
    return torch.randn(size or SIZE, generator=torch.Generator().manual_seed(seed)) / 8


def written(kind: str, weight: torch.Tensor):
    """The blocks [out, groups, bytes] that llama.cpp's quantisation of this kind makes, and the weights in them."""
    kind = gguf.GGMLQuantizationType[kind]
    raw = gguf.quantize(weight.numpy(), kind)
    return (torch.from_numpy(raw).view(len(weight), weight.shape[1] // GROUP, -1),
            torch.from_numpy(gguf.dequantize(raw, kind).copy()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_codes_scales_and_minima_of_a_gguf_are_found_in_its_weights(kind):
    before, bits = KINDS[kind]
    blocks, weight = written(kind, matrix(3))
    found = codes_of(weight)
    assert (found.own, found.bits) == (True, bits)
    assert torch.equal(found.dense(), weight)
    kept = blocks[..., before:]                    # of 4 bits: weight i and weight i + 16 share a byte
    codes = torch.cat((kept & 15, kept >> 4), -1) if bits == 4 else kept.view(torch.int8)
    assert torch.equal(found.codes, codes.flatten(1))
    assert torch.equal(found.scale, blocks[..., :2].contiguous().view(torch.float16)[..., 0])
    if kind == "Q4_1":
        assert torch.equal(found.minimum, blocks[..., 2:4].contiguous().view(torch.float16)[..., 0])


def test_a_group_of_equal_weights_and_one_of_zeros_are_found_too():
    weight = written("Q4_1", torch.cat((torch.zeros(2, 32), torch.full((2, 32), 0.25)), 1))[1]
    found = codes_of(weight)
    assert found.own
    assert torch.equal(found.dense(), weight)


@pytest.mark.parametrize("row", [5, 39])
def test_one_weight_that_is_off_by_the_last_bit_makes_them_rounded_ones(row):
    """Row 39 of 70: behind those that a layout is tried on."""
    weight = written("Q4_1", torch.cat((matrix(4), matrix(5))))[1]
    weight[row + 30, 17] = weight[row + 30, 17].nextafter(torch.tensor(9.0))
    assert not codes_of(weight).own


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_16_bits_are_never_called_the_checkpoints_own(dtype):
    assert not codes_of(written("Q4_1", matrix(6))[1].to(dtype)).own


@pytest.mark.parametrize("into", [96, 80, 7])
def test_other_weights_go_to_the_nearest_of_sixteen_steps_between_a_groups_ends(into):
    weight = matrix(7, 24, into)
    found = codes_of(weight)
    assert (found.own, found.bits, tuple(found.codes.shape)) == (False, 4, (24, into))
    step = found.scale.float().repeat_interleave(GROUP, 1)[:, :into]
    assert int(found.codes.max()) <= 15
    assert ((found.dense() - weight).abs() <= step * (0.5 + 2 ** -6)).all()      # d and m are rounded to float16


def test_eight_bits_are_asked_for_by_name():
    weight = matrix(8)
    found = codes_of(weight, bits=8)
    assert (found.own, found.bits, found.minimum) == (False, 8, None)
    assert ((found.dense() - weight).abs() <= found.scale.float().repeat_interleave(GROUP, 1) * 0.51).all()


@pytest.mark.parametrize("kinds", [("Q4_1", "Q4_1"), ("Q4_1", "Q8_0"), ("Q8_0", "Q8_0"), ("Q4_0", "Q4_1", "Q8_0")])
def test_matrices_of_different_layouts_are_joined_without_a_change_of_value(kinds):
    weights = [written(kind, matrix(seed))[1] for seed, kind in enumerate(kinds)]
    found = joined([codes_of(weight) for weight in weights])
    assert found.own
    assert found.bits == (8 if "Q8_0" in kinds else 4)
    assert torch.equal(found.dense(), torch.cat(weights))
    assert not joined([codes_of(weights[0]), codes_of(matrix(9))]).own
