"""Our own kernel for plain weights gives their products, and a row has the same bits among any others."""

import pytest
import torch
import torch.nn.functional as F

from specdec_lib.models.llama import dense_linear, four_bit_linear, weights
from specdec_lib.models.llama.compiled_linear import CompiledLayer, normed
from specdec_lib.models.llama.dense_linear import DenseLinear, compiled_with, dense_code
from specdec_lib.models.llama.forward import scaled
from specdec_lib.models.llama.packed_linear import PackedLinear, cancelling
from specdec_lib.models.llama.path_attention import has_vectors
from tests.processor import NARROWER

SIZES = [(40, 96), (16, 32), (97, 80), (33, 7), (1, 1), (320, 192)]      # outputs and inputs; not all fill tiles
DTYPES = [torch.bfloat16, torch.float32]
ROUNDING = {torch.bfloat16: 2 ** -8, torch.float32: 2 ** -23}
BUILDS = {"the widest": (), "vectors, without AMX": ("-DVECTORS",), **NARROWER}
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 19, 28, 64, 65, 130)
both = pytest.mark.parametrize("dtype", DTYPES, ids=["bf16", "fp32"])
narrow = pytest.mark.parametrize("options", BUILDS.values(), ids=BUILDS)
pytestmark = pytest.mark.skipif(not has_vectors(), reason="the C code has no vectors for this processor")


def numbers(seed: int, *size: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale


def layer_of(out: int, into: int, dtype: torch.dtype, *options: str, biased: bool = False) -> DenseLinear:
    bias = numbers(3, out).to(dtype) if biased else None
    weight = numbers(out + into, out, into, scale=into ** -0.5).to(dtype)
    return DenseLinear(weight, bias, compiled_with(dtype, *options))


def close(found: torch.Tensor, layer: DenseLinear, x: torch.Tensor) -> bool:
    """Whether these are the products up to one rounding, and that of sums in single precision."""
    weight = layer.dense().double()
    exact = x.double() @ weight.T + (0 if layer.bias is None else layer.bias.double())
    sums = 2 ** -21 * (x.double().abs() @ weight.abs().T + 1)
    return bool((found.double() - exact).abs().le(ROUNDING[x.dtype] * exact.abs() + sums).all())


@both
@narrow
@pytest.mark.parametrize("biased", [False, True], ids=["bare", "bias"])
@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_product_within_rounding(size, biased, options, dtype):
    layer = layer_of(*size, dtype, *options, biased=biased)
    for rows in ROWS:
        x = numbers(rows, rows, size[1]).to(dtype)
        assert layer(x).dtype == dtype
        assert close(layer(x), layer, x), rows


@both
@narrow
def test_a_row_has_the_same_bits_alone_and_among_others_with_one_thread_and_two(options, dtype):
    """Numbers whose sums cancel: what is left is rounding, so every other order of a sum shows."""
    weight, x = cancelling(608, 130, 576, dtype)
    layer, threads = DenseLinear(weight, code=compiled_with(dtype, *options)), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = torch.cat([layer(row[None]) for row in x])
        assert alone.any()                         # rounding is left
        for count in (1, 2):
            torch.set_num_threads(count)
            for rows in ROWS:
                assert torch.equal(layer(x[-rows:]), alone[-rows:]), (rows, count)
    finally:
        torch.set_num_threads(threads)


@both
@narrow
def test_a_few_rows_behind_many_find_room_for_as_many_threads_as_there_are(options, dtype):
    """Few rows are taken in by each thread; the memory is that of the many before them."""
    layer, x, threads = layer_of(640, 192, dtype, *options), numbers(5, 144, 192).to(dtype), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = torch.cat([layer(row[None], 1e-5) for row in x])
        for count in (24, 70):                     # more of them than tiles, and than shares of the work
            torch.set_num_threads(count)
            for rows in (16, 80, 144):
                assert torch.equal(layer(x[:rows], 1e-5), alone[:rows]), (rows, count)
    finally:
        torch.set_num_threads(threads)


@both
def test_a_norm_before_the_product_is_the_root_mean_square_norm(dtype):
    layer, x, eps = layer_of(97, 80, dtype), numbers(4, 6, 80, scale=3).to(dtype), 0.5
    normed = F.rms_norm(x.float(), (80,), None, eps).to(dtype)
    assert (layer(x, eps).float() - layer(normed).float()).abs().max() < 4 * ROUNDING[dtype]


@both
@narrow
@pytest.mark.parametrize("biased", [False, True], ids=["bare", "bias"])
@pytest.mark.parametrize("mlp", [112, 128], ids=["part of a vector", "whole vectors"])
def test_the_rest_of_a_layer_is_that_of_its_matrices(mlp, biased, options, dtype):
    hidden, heads, eps = 96, 64, 0.5
    qkv, out, gate_up, down = (layer_of(*size, dtype, *options, biased=biased) for size in
                               ((128, hidden), (hidden, heads), (2 * mlp, hidden), (hidden, mlp)))
    layer, bias = CompiledLayer(qkv, out, gate_up, down, eps), [part.bias.double() if biased else 0 for part in
                                                                (out, gate_up, down)]
    for rows in (1, 5, 9, 20, 70, 130):
        x, attended = numbers(rows, rows, hidden).to(dtype), numbers(rows + 1, rows, heads).to(dtype)
        wide = x.double() + attended.double() @ out.dense().double().T + bias[0]
        gate, up = (F.rms_norm(wide, (hidden,), None, eps) @ gate_up.dense().double().T + bias[1]).chunk(2, -1)
        exact = wide + (F.silu(gate) * up) @ down.dense().double().T + bias[2]
        assert (layer.rest(x, attended).double() - exact).abs().max() < 40 * ROUNDING[dtype]
        assert torch.equal(layer.heads(x), qkv(x, eps))
        assert torch.equal(layer.rest(x, attended)[:1], layer.rest(x[:1], attended[:1]))


@both
@pytest.mark.parametrize("size", SIZES)
def test_weights_are_given_back_and_some_rows_of_a_layer_are_a_layer(size, dtype):
    weight, bias, ids = numbers(8, *size).to(dtype), numbers(9, size[0]).to(dtype), torch.tensor([size[0] - 1, 0])
    layer, x = DenseLinear(weight, bias), numbers(10, 5, size[1]).to(dtype)
    assert torch.equal(layer.dense(), weight)
    assert torch.equal(layer.rows(ids)(x), layer(x)[:, ids])


@both
@narrow
@pytest.mark.parametrize("out", [1, 16, 64, 112, 200])
def test_the_weights_of_one_output_are_put_in_place(out, options, dtype):
    weight, new, code = numbers(8, out, 70).to(dtype), numbers(9, out, 70).to(dtype), compiled_with(dtype, *options)
    layer = DenseLinear(weight, None, code)
    for row in range(0, out, 3):
        layer.put(row, new[row])
        weight[row] = new[row]
    assert torch.equal(layer.dense(), weight)
    assert torch.equal(layer(new), DenseLinear(weight, None, code)(new))


def test_infinite_numbers_and_none_stay_in_their_row():
    layer, x = layer_of(33, 20, torch.bfloat16), numbers(11, 3, 20).bfloat16()
    x[1, 4], x[2, 0] = torch.inf, torch.nan
    assert torch.equal(layer(x)[:1], layer(x[:1]))
    assert not layer(x)[1:].isfinite().any()


@pytest.mark.parametrize("x", [torch.zeros(3, 96), torch.zeros(96).bfloat16(), torch.zeros(3, 95).bfloat16()])
def test_other_numbers_than_rows_of_its_dtype_are_an_error(x):
    with pytest.raises(ValueError, match="this layer reads rows of 96 numbers in torch.bfloat16"):
        layer_of(40, 96, torch.bfloat16)(x)


@both
def test_a_target_takes_it_where_it_compiles_and_onednn_elsewhere(dtype, monkeypatch):
    weight = numbers(12, 16, 32).to(dtype)
    expected = PackedLinear if dense_code(dtype) is None else DenseLinear
    assert isinstance(weights.linear(weight), expected)
    monkeypatch.setattr(dense_linear, "compiled_with", lambda dtype: None)
    assert isinstance(weights.linear(weight), PackedLinear)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_dtypes_have_no_code(dtype):
    assert dense_code(dtype) is None
    assert isinstance(weights.linear(torch.eye(4, dtype=dtype)), PackedLinear)


def test_four_matrices_are_fused_only_where_all_are_compiled_and_the_gates_fill_tiles():
    own, other = layer_of(16, 16, torch.float32), PackedLinear(torch.eye(16))
    for mlp, fused in ((16, True), (32, True), (8, False), (24, False)):
        gate_up = layer_of(2 * mlp, 16, torch.float32)
        assert (weights.fused_layer(own, own, gate_up, own, eps=1.0) is not None) == fused
        assert weights.fused_layer(own, own, gate_up, other, eps=1.0) is None


@both
@pytest.mark.parametrize("size", [(1, 1), (3, 40), (9, 576)])
def test_a_norm_in_compiled_code_is_torchs_and_falls_back_to_it(size, dtype):
    x, weight, code = numbers(1, *size, scale=3).to(dtype), numbers(2, size[1]).to(dtype), compiled_with(dtype)
    exact = F.rms_norm(x.double(), size[1:], weight.double(), 1e-5)
    for by in (code, None):
        found = normed(by, x, weight, 1e-5)
        assert found.dtype == dtype
        assert (found.double() - exact).abs().le(2 * ROUNDING[dtype] * exact.abs() + 1e-30).all()
    assert torch.equal(normed(code, x, weight, 1e-5)[:1], normed(code, x[:1], weight, 1e-5))
    assert normed(code, x.double(), weight.double(), 1e-5).dtype == torch.float64


@pytest.mark.parametrize("code", [*map(compiled_with, DTYPES), four_bit_linear.compiled_with(), None])
@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (9, 576)])
def test_a_norm_without_a_weight_is_the_same_in_every_code_and_without_one(shape, code):
    dtype = torch.float32 if code is None else code.dtype
    x = numbers(3, *shape, scale=3).to(dtype)
    exact = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + 1e-5)
    least = 1e-30 if code else 1e-6                # without code, the mean of a row and its negative is nearly zero
    for found in (scaled(x, 1e-5, code), scaled(x.double(), 1e-5, code)):
        assert (found.double() - exact).abs().le(2 * ROUNDING[dtype] * exact.abs() + least).all()
