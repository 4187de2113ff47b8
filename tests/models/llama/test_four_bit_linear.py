"""The 4-bit kernel computes with exactly its codes, and a row has the same bits among any others."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from specdec_lib.models.llama import four_bit_linear as four_bit
from specdec_lib.models.llama.compiled import ON_ARM, processor_flags
from specdec_lib.models.llama.compiled_linear import CompiledLayer
from specdec_lib.models.llama.four_bit_linear import FourBitLinear, compiled_with, tile_name
from specdec_lib.models.llama.group_codes import GROUP, GroupCodes, codes_of, joined, q4_0, q4_1, q8_0
from specdec_lib.types import Refusal
from tests.processor import NARROWER

LAYOUTS = {"q4_1": q4_1, "q4_0": q4_0, "q8_0": q8_0, "mixed": lambda w: joined([q4_1(w[:9]), q8_0(w[9:])])}
EPS = 0.5                                          # large enough to show
SIZES = [(40, 96), (16, 32), (97, 80), (33, 7), (320, 192)]      # outputs and inputs; not all fill tiles and groups


def numbers(seed: int, *size: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale


def layer_of(out: int, into: int, layout: str = "q4_1", extras: bool = False, **more) -> FourBitLinear:
    some = {"norm": 1 + numbers(1, into) / 4, "factor": 1 + numbers(2, out) / 4, "bias": numbers(3, out)}
    given = some if extras else {}
    return FourBitLinear(LAYOUTS[layout](numbers(out + into, out, into, scale=into ** -0.5)), **given, **more)


def exact(layer: FourBitLinear, x: torch.Tensor) -> torch.Tensor:
    """In double precision with the matrix as it is."""
    y = x.double() @ layer.dense(torch.float64).T
    return y if layer.bias is None else y + layer.bias.double()


def bound(layer: FourBitLinear, x: torch.Tensor) -> torch.Tensor:
    """How far a result may be: one rounding to bfloat16, single precision, and 2^-14 of each group's largest input."""
    weight = layer.dense(torch.float64).abs()
    scaled = x.double().abs() * (1 if layer.norm is None else layer.norm.double().abs())
    plain = weight if layer.norm is None else weight / layer.norm.double().abs()
    most = torch.stack([part.amax(-1) for part in scaled.split(GROUP, 1)], 1)
    per_group = torch.stack([part.sum(-1) for part in plain.split(GROUP, 1)], 1)
    return 2 ** -8 * exact(layer, x).abs() + 2 ** -20 * (x.double().abs() @ weight.T) + 2 ** -14 * most @ per_group.T


@pytest.mark.parametrize("extras", [False, True], ids=["bare", "norm, factor and bias"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_product_with_its_codes_within_rounding(size, layout, extras):
    layer = layer_of(*size, layout, extras)
    for rows in (1, 2, 3, 5, 8, 21):
        x = numbers(rows, rows, size[1]).bfloat16()
        assert (layer(x).double() - exact(layer, x)).abs().le(bound(layer, x)).all()


def test_activations_within_six_octaves_enter_exactly():
    """Whole numbers of 6 bits: what is left is one rounding to bfloat16, and single precision where sums cancel."""
    layer = layer_of(64, 256)
    x = torch.randint(-63, 64, (9, 256), generator=torch.Generator().manual_seed(5)).bfloat16()
    y = exact(layer, x)
    single = 2 ** -21 * (x.double().abs() @ layer.dense(torch.float64).abs().T)
    assert (layer(x).double() - y).abs().le(2 ** -8 * y.abs() + single).all()


def test_the_largest_number_of_a_group_with_all_its_bits_enters_exactly():
    ones = FourBitLinear(q4_1(torch.ones(16, 32)))
    x = torch.zeros(2, 32, dtype=torch.bfloat16)
    x[0, :2], x[1, :2] = torch.tensor([255.0, -254.0]), torch.tensor([-255.0, 254.0])
    assert torch.equal(ones(x), torch.tensor([[1.0], [-1.0]]).bfloat16().expand(2, 16))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_row_has_the_same_bits_alone_and_among_up_to_forty_others_with_one_thread_and_two(layout):
    layer = layer_of(608, 576, layout)
    x = numbers(6, 81, 576).bfloat16()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = torch.cat([layer(row[None]) for row in x])
        for count in (1, 2):
            torch.set_num_threads(count)
            for rows in range(1, 41):
                assert torch.equal(layer(x[rows:2 * rows]), alone[rows:2 * rows])
            assert torch.equal(layer(x), alone)        # more than go through together
    finally:
        torch.set_num_threads(threads)


def in_plain_c(layer: FourBitLinear, option: str = "-DPORTABLE") -> FourBitLinear:
    """The same layer, computed without vector instructions, or as compiled with this option."""
    return FourBitLinear(layer.unpacked(), layer.norm, layer.factor, layer.bias, compiled_with(option))


def test_the_tile_is_the_widest_that_the_processor_has():
    flags = set(processor_flags().split())
    wide = {"AVX-512 VNNI": {"avx512f", "avx512bw", "avx512_vnni"}, "AVX2": {"avx2", "fma", "f16c"},
            "plain C": set()}
    widest = "NEON" if ON_ARM else next(name for name, needed in wide.items() if needed <= flags)
    assert tile_name(compiled_with()) == widest
    assert tile_name(compiled_with("-DPORTABLE")) == "plain C"


@pytest.mark.parametrize("minima", [False, True], ids=["without minima", "with minima"])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_kernel_in_plain_c_has_the_same_bits_at_every_width_and_number_of_rows_and_threads(bits, minima):
    threads = torch.get_num_threads()
    try:
        for size in ((1, 1), (15, 31), (16, 32), (33, 65), (640, 100)):
            norm, factor, bias = 1 + numbers(1, size[1]) / 4, 1 + numbers(2, size[0]) / 4, numbers(3, size[0])
            fast = FourBitLinear(random_codes(bits, minima, *size), norm, factor, bias)
            plain, x = in_plain_c(fast), numbers(7, 70, size[1]).bfloat16()
            narrower = [in_plain_c(fast, *options) for options in NARROWER.values()]
            for rows in (*range(1, 41), 70):
                torch.set_num_threads(1 + rows % 2)
                assert torch.equal(fast(x[:rows], 1e-5), expected := plain(x[:rows], 1e-5))
                assert all(torch.equal(narrow(x[:rows], 1e-5), expected) for narrow in narrower)
            for count in (1, 2):
                torch.set_num_threads(count)
                assert torch.equal(fast(x), plain(x))
    finally:
        torch.set_num_threads(threads)


def random_codes(bits: int, minima: bool, out: int, into: int) -> GroupCodes:
    """Any codes, not only those that rounding makes, with scales of many sizes."""
    dice, size = torch.Generator().manual_seed(bits + out), (out, -(-into // GROUP))
    low, high, kind = (0, 16, torch.uint8) if bits == 4 else (-128, 128, torch.int8)
    scale, minimum = ((torch.randn(size, generator=dice) * 10.0 ** torch.randint(-7, 3, size, generator=dice)).half()
                      for _ in range(2))
    codes = torch.randint(low, high, (out, into), generator=dice).to(kind)
    return GroupCodes(codes, scale, minimum if minima else None, bits, False)


@pytest.mark.parametrize("row", [254.0, -254.0, "alternating", "one", "with a norm", "subnormal"])
@pytest.mark.parametrize("code", [15, -128, 127])
def test_the_largest_codes_times_the_largest_integers_overflow_nowhere(code, row):
    """Against exact sums: every integer is the largest of a bfloat16, 32512 of either sign, or with a norm 32639."""
    out, into, bits = 33, 96, 4 if code == 15 else 8
    scale = torch.full((out, into // GROUP), 2.0 ** -14).half()
    given = GroupCodes(torch.full((out, into), code, dtype=torch.uint8 if bits == 4 else torch.int8), scale, None, bits,
                       False)
    x = torch.zeros(7, into)
    if isinstance(row, float):
        x[:] = row
    elif row == "alternating":
        x[:, ::2], x[:, 1::4] = 254.0, -254.0
    elif row == "one":
        x[torch.arange(7), torch.arange(7) * 13] = -254.0
    else:
        x[:] = 2.0 ** -130 if row == "subnormal" else -254.0
    norm = torch.full((into,), 254.992 / 254) if row == "with a norm" else torch.ones(into)
    x, fast = x.bfloat16(), FourBitLinear(given, norm)
    exact_sums = ((x.double() * norm).sum(1) * code * 2.0 ** -14).float().bfloat16()
    for rows in range(1, 8):
        found = fast(x[:rows])
        assert torch.equal(found, in_plain_c(fast)(x[:rows]))
        assert torch.equal(found, exact_sums[:rows, None].expand(rows, out)) or row == "subnormal"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layer_in_plain_c_has_the_same_bits(layout):
    layer = decoder_layer(layout)
    other = CompiledLayer(*(in_plain_c(matrix) for matrix in layer.matrices), layer.eps)
    x, attended = numbers(19, 70, 96).bfloat16(), numbers(20, 70, 64, scale=30).bfloat16()
    for rows in (1, 2, 5, 6, 7, 13, 40, 70):
        assert torch.equal(layer.heads(x[:rows]), other.heads(x[:rows]))
        assert torch.equal(layer.rest(x[:rows], attended[:rows]), other.rest(x[:rows], attended[:rows]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES)
def test_codes_are_packed_and_given_back(size, layout):
    codes = LAYOUTS[layout](numbers(8, *size))
    layer, again = FourBitLinear(codes), FourBitLinear(codes).unpacked()
    assert torch.equal(again.codes, codes.codes)
    assert torch.equal(again.scale, codes.scale)
    assert (again.minimum is None) == (codes.minimum is None)
    assert torch.equal(layer.dense(torch.float32), codes.dense())
    assert layer.dense().dtype == torch.bfloat16


def test_some_rows_of_a_layer_are_a_layer_of_these_rows():
    layer, ids, x = layer_of(97, 80, extras=True), torch.tensor([96, 3, 50]), numbers(9, 5, 80).bfloat16()
    assert torch.equal(layer.rows(ids)(x), layer(x)[:, ids])


def test_with_an_epsilon_the_row_is_divided_by_its_root_mean_square_first():
    layer, x = layer_of(64, 80, extras=True), numbers(10, 6, 80).bfloat16()
    unit = x.double() / (x.double().pow(2).mean(-1, keepdim=True) + 0.5).sqrt()
    assert torch.allclose(layer(x, 0.5).double(), exact(layer, unit), rtol=2 ** -8, atol=1e-3)


def decoder_layer(layout: str = "q4_1", hidden: int = 96, heads: int = 64, mlp: int = 176):
    """Matrices of random codes as a decoder layer."""
    make = partial(layer_of, layout=layout)
    up = FourBitLinear(codes_of(numbers(11, 2 * mlp, hidden, scale=0.2)), norm=1 + numbers(12, hidden) / 4)
    return CompiledLayer(make(80, hidden), make(hidden, heads), up, make(hidden, mlp), EPS)


def test_the_rest_of_a_layer_is_out_then_the_gated_product_each_added_to_its_input():
    layer = decoder_layer()
    qkv, out, gate_up, down = layer.matrices
    x, attended = numbers(13, 7, 96).bfloat16(), numbers(14, 7, 64).bfloat16()
    h = (x.double() + exact(out, attended)).bfloat16().double()
    unit = h / (h.pow(2).mean(-1, keepdim=True) + EPS).sqrt()
    gate, up = exact(gate_up, unit).chunk(2, -1)
    expected = h + exact(down, F.silu(gate) * up)
    found = layer.rest(x, attended).double()
    assert torch.allclose(found, expected, rtol=2 ** -7, atol=2e-2)
    assert float((found - expected).norm() / expected.norm()) < 2 ** -7
    assert torch.equal(layer.heads(x), qkv(x, EPS))


def test_the_rest_of_a_layer_has_the_same_bits_among_any_rows():
    layer, x, attended = decoder_layer(), numbers(15, 70, 96).bfloat16(), numbers(16, 70, 64).bfloat16()
    whole = layer.rest(x, attended)
    for rows in range(1, 41):
        assert torch.equal(layer.rest(x[rows - 1:2 * rows - 1], attended[rows - 1:2 * rows - 1]),
                           whole[rows - 1:2 * rows - 1])


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_number_that_is_none_makes_its_own_row_none(bad):
    layer, x = layer_of(40, 96), numbers(17, 3, 96).bfloat16()
    fine = layer(x)
    x[1, 40] = bad
    found = layer(x)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], fine[[0, 2]])


def test_rows_of_zeros_give_the_bias():
    layer = layer_of(40, 96, extras=True)
    assert torch.equal(layer(torch.zeros(2, 96, dtype=torch.bfloat16)), layer.bias.bfloat16().expand(2, -1))


@pytest.mark.parametrize("x", [torch.ones(2, 96), torch.ones(2, 64).bfloat16(), torch.ones(96).bfloat16()])
def test_other_numbers_than_rows_of_bfloat16_are_an_error(x):
    with pytest.raises(ValueError, match="this layer reads rows of 96 numbers in torch.bfloat16"):
        layer_of(40, 96)(x)


def test_rows_that_do_not_lie_side_by_side_are_read_as_they_are():
    layer, x = layer_of(40, 96), numbers(18, 4, 192).bfloat16()
    assert torch.equal(layer(x[:, 50:146]), layer(x[:, 50:146].clone()))


def test_without_a_compiler_one_sentence_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    compiled_with.cache_clear()
    try:
        with pytest.raises(Refusal, match="no C compiler works here: install one, such as gcc"):
            layer_of(40, 96)
    finally:
        four_bit.compiled_with.cache_clear()
