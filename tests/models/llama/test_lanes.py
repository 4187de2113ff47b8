"""The compiled attention takes its sums in one order, whatever it is built for: that of one number at a time."""

import ctypes
import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specdec_lib.models.llama import compiled
from specdec_lib.models.llama.compiled import FLAGS, NATIVE, ON_ARM, find_compiler, library
from specdec_lib.models.llama.invariant_attention import is_chain, paths_of
from specdec_lib.models.llama.path_attention import ADDRESS, DTYPES, INT64, SOURCE, PathAttention, path_attention
from specdec_lib.types import ROOT
from tests.processor import NARROWER

TREE = (ROOT, ROOT, 0, 1, 2, 2, 5, 3, 0, 8)
AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
BUILDS = {"the widest vectors": ("-DVECTORS",), **NARROWER}
PLAIN = """
#include <math.h>
#include <stdint.h>

static float exponential(float x) {
    const float terms[] = {8.33333333e-3f, 4.16666667e-2f, 1.66666667e-1f, 0.5f, 1.0f, 1.0f};
    float n = rintf(x * 1.44269504f), r = fmaf(-n, 1.42860677e-6f, fmaf(-n, 0.693145752f, x)), p = 1.38888889e-3f;
    for (int i = 0; i < 6; i++) p = fmaf(p, r, terms[i]);
    double out = p;
    for (; n < 0; n++) out /= 2;
    return (float)out;
}

void attend(const float *q, const float *keys, const float *values, int64_t n, int64_t d, float *weights, float *out) {
    float most = -INFINITY, sums[16] = {0};
    for (int64_t c = 0; c < n; c++) {
        weights[c] = 0;
        for (int64_t i = 0; i < d; i++) weights[c] = fmaf(q[i], keys[c * d + i], weights[c]);
        most = fmaxf(most, weights[c]);
    }
    for (int64_t c = 0; c < n; c++) sums[c % 16] += weights[c] = exponential(weights[c] - most);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) sums[i] += sums[i + half];
    for (int64_t i = 0; i < d; i++) {
        out[i] = 0;
        for (int64_t c = 0; c < n; c++) out[i] = fmaf(weights[c], values[c * d + i], out[i]);
        out[i] *= 1 / sums[0];
    }
}
"""


def built(heads: tuple[int, int, int], dtype: torch.dtype = torch.float32) -> dict[str, PathAttention]:
    """The attention of this dtype as each build that this processor runs."""
    own = path_attention(*heads, dtype)
    if own is None:                                # test_path_attention.py says where
        return {}
    found = {}
    for name, options in BUILDS.items():
        attend = library(SOURCE, f"-DHEAD={heads[2]}", *DTYPES[dtype], *options).attend
        attend.argtypes, attend.restype = (*[ADDRESS] * 4, INT64, ADDRESS), ctypes.c_int
        found[name] = replace(own, attend=attend)
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Attention of one query, number by number."""
    source = tmp_path_factory.mktemp("plain") / "plain.c"
    source.write_text(PLAIN)
    one = library(source)

    def attend(q, keys, values):
        out, weights = torch.empty_like(q), q.new_empty(len(keys))
        places = [ADDRESS(part.data_ptr()) for part in (q, keys, values)]
        one.attend(*places, INT64(len(keys)), INT64(len(q)), ADDRESS(weights.data_ptr()), ADDRESS(out.data_ptr()))
        return out

    return attend


@pytest.mark.parametrize("spread", [1, 60], ids=["even", "steep"])
@pytest.mark.parametrize("heads", [(9, 3, 64), (4, 4, 96), (8, 1, 128), (2, 1, 32)])
@pytest.mark.parametrize(("context", "parents"), [(1, TREE), (70, TREE), (33, tuple(range(ROOT, 20))), (40, (ROOT,))])
def test_every_build_has_the_bits_of_sums_taken_number_by_number(heads, context, parents, spread, plain):
    count, kv_heads, d = heads
    dice, rows = torch.Generator().manual_seed(context), len(parents)
    cache = torch.randn(2, kv_heads, context + rows, d, generator=dice)
    fed = torch.randn(rows, count + 2 * kv_heads, d, generator=dice) / 2
    fed[:, :count] *= spread
    angles = torch.randn(rows, d // 2, generator=dice)
    cos, sin = angles.cos().repeat(1, 2), torch.cat((-angles.sin(), angles.sin()), -1)
    for name, attention in built(heads).items():
        qkv, (keys, values) = fed.clone(), cache.clone()
        out = attention.rows(slice(context, context + rows), context, parents, cos, sin)(qkv, keys, values)
        for row, path in enumerate(paths_of(parents)):
            columns = [*range(context), *(context + node for node in path)]
            assert len(columns) == context + row + 1 or not is_chain(parents)
            for head in range(count):
                of = head // (count // kv_heads)
                expected = plain(qkv[row, head], keys[of, columns].contiguous(), values[of, columns].contiguous())
                assert torch.equal(out[row, head * d:(head + 1) * d], expected), name


def test_weights_below_the_smallest_normal_number_are_rounded_once_in_every_build(plain):
    """Each of 32 columns fills one number of the result; their scores lie so far below the last column's."""
    below = torch.tensor([*torch.linspace(80, 110, 30).tolist(), 180.0, 1000.0])
    cache, fed = torch.zeros(2, 1, 33, 32), torch.zeros(1, 3, 32)
    cache[0, 0, :32, 0], cache[1, 0, :32], fed[0, 0, 0] = -below, torch.eye(32) * 2.0 ** 120, 1
    for name, attention in built((1, 1, 32)).items():
        keys, values = cache.clone()
        out = attention.rows(slice(32, 33), 33, (), torch.ones(1, 32), torch.zeros(1, 32))(fed.clone(), keys, values)[0]
        assert torch.equal(out, plain(fed[0, 0], keys[0], values[0])), name
        assert torch.allclose(out.double(), (-below.double()).exp() * 2.0 ** 120, rtol=1e-5, atol=2.0 ** -30), name
        assert (out > 0).tolist() == (below < 150 * 0.6931).tolist(), name


@pytest.mark.parametrize("dtype", DTYPES, ids=["bf16", "fp32"])
@pytest.mark.parametrize("most", [0.0, 1e15, 3e38])
@pytest.mark.parametrize("apart", [1e3, 1e13, 1e15, 1e20, 1e30, 3e38])
def test_scores_however_far_apart_have_finite_weights_that_sum_to_one(apart, most, dtype):
    """Of 31 columns, far below two equal ones or one greater; the last number of the result sums the weights."""
    cache, fed = torch.zeros(2, 1, 33, 32, dtype=dtype), torch.zeros(1, 3, 32, dtype=dtype)
    cache[0, 0, :31, 0], cache[0, 0, 31, 0] = -apart * torch.linspace(.1, 1, 31), most
    cache[1, 0, :31, :31], cache[1, 0, :, 31], fed[0, 0, 0], fed[0, 2, 31] = torch.eye(31), 1, 1, 1
    weights = torch.softmax(torch.cat((cache[0, 0, :32, 0], fed[0, 1, :1])).double(), 0)
    for name, attention in built((1, 1, 32), dtype).items():
        keys, values = cache.clone()
        out = attention.rows(slice(32, 33), 33, (), torch.ones(1, 32), torch.zeros(1, 32))(fed.clone(), keys, values)[0]
        assert torch.allclose(out.double(), weights @ values[0].double(), rtol=0, atol=1e-6), name
        assert out[31] == 1, name


def test_weights_are_rounded_to_bfloat16_before_they_are_summed_and_multiplied():
    """The row's own column has weight 1; each of the others fills one number of the result."""
    cache, fed = torch.zeros(2, 1, 33, 32, dtype=torch.bfloat16), torch.zeros(1, 3, 32, dtype=torch.bfloat16)
    below = torch.linspace(.1, 4, 32).bfloat16()
    cache[0, 0, :32, 0], cache[1, 0, :32], fed[0, 0, 0] = -below, torch.eye(32), 1
    exact = (-below.double()).exp()
    kept = exact.bfloat16().double()
    expected, unrounded = ((weights / (1 + weights.sum())).bfloat16() for weights in (kept, exact))
    assert (expected != unrounded).sum() > 3       # so rounding shows
    for name, attention in built((1, 1, 32), torch.bfloat16).items():
        keys, values = cache.clone()
        out = attention.rows(slice(32, 33), 33, (), torch.ones(1, 32), torch.zeros(1, 32))(fed.clone(), keys, values)[0]
        assert (out != expected).sum() <= 1, name  # one tie may fall the other way


@pytest.mark.parametrize(("options", "said"), [
    (("-mno-avx512f", "-mno-avx2"), "nor AVX2"), (("-DSINGLE", "-mno-avx512f", "-mno-avx2"), "nor AVX2")])
def test_code_that_a_processor_cannot_run_is_not_compiled(options, said, tmp_path):
    if path_attention(2, 1, 32, torch.float32) is None or ON_ARM:
        return
    with pytest.raises(subprocess.CalledProcessError) as refused:
        compiled.build(SOURCE, [*find_compiler(), *FLAGS, "-DHEAD=32", *options], tmp_path / "none.so")
    assert said in refused.value.stderr.decode()
    assert library(SOURCE, "-DHEAD=32", *options) is None


@pytest.mark.parametrize("options", [("-DSINGLE",), (), ("-mavx512bf16",)], ids=["fp32", "bf16 emulated", "bf16"])
def test_the_code_for_avx512_compiles_wherever_a_compiler_for_such_processors_is(options, tmp_path):
    if platform.machine() == "x86_64" and find_compiler() is not None:
        words = [*find_compiler(), *FLAGS, "-O1", "-Wall", "-Wextra", "-Werror", "-DHEAD=32", *AVX512, *options]
        compiled.build(SOURCE, words, tmp_path / "some.so")
        assert compiled.is_whole(tmp_path / "some.so")


def printed(compiler: list[str], program: Path, *run: str) -> list[str]:
    """What `lanes_bits.c` prints as this compiler builds it; `run` are the words that start the program."""
    words = [word for word in FLAGS if word not in (NATIVE, "-shared", "-fPIC")]
    subprocess.run([*compiler, *words, "-Wall", "-Wextra", "-Werror", f"-I{SOURCE.parent}",
                    str(Path(__file__).with_name("lanes_bits.c")), "-lm", "-o", str(program)], check=True)
    return subprocess.run([*run, str(program)], check=True, capture_output=True, text=True).stdout.splitlines()


def test_all_lanes_have_the_same_bits_on_this_processor(tmp_path):
    if path_attention(2, 1, 32, torch.float32) is None:
        return
    own = [*find_compiler(), NATIVE]
    widest = printed(own, tmp_path / "widest")
    assert len(widest) > 2000
    for name, options in NARROWER.items():
        assert printed([*own, *options], tmp_path / "narrower") == widest, name


@pytest.mark.long
def test_lanes_on_arm_have_the_bits_of_this_processor(tmp_path):
    """Needs Debian's gcc-aarch64-linux-gnu and qemu-user-static."""
    here = printed([*find_compiler(), NATIVE], tmp_path / "here")
    assert printed(["aarch64-linux-gnu-gcc", "-static"], tmp_path / "arm", "qemu-aarch64-static") == here
