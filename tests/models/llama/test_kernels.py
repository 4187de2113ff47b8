"""What this machine's kernels promise is tried on the shapes of real models, and a broken promise is noticed."""

import ctypes
from dataclasses import replace

import pytest
import torch

from specdec_lib.models.llama import kernels, weights
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.dense_linear import DenseLinear
from specdec_lib.models.llama.invariant_attention import Layout
from specdec_lib.models.llama.packed_linear import PackedLinear, cancelling, packs_dtype
from specdec_lib.models.llama.path_attention import path_attention
from tests.processor import torch_keeps_rows

SMOL = LlamaConfig(layers=1, hidden=576, heads=9, kv_heads=3, head_dim=64, mlp=1536, vocab=64, context=2048)
SMALL = LlamaConfig(layers=1, hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=128, vocab=64, context=512)
HEADS_OF_64 = replace(SMALL, head_dim=64)
both = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])


def test_at_every_width_and_context_the_kernels_keep_what_a_short_trial_showed():
    """The short trial runs whenever a model is loaded; this one has all widths, and contexts around every border."""
    if not packs_dtype(torch.bfloat16):
        return
    short = kernels.linears_agree(SMOL) and kernels.torch_layout(SMOL) is not None
    linears = kernels.linears_agree(SMOL, kernels.ALL_ROWS)
    layout = kernels.torch_layout(SMOL, kernels.ALL_ROWS, kernels.ALL_COUNTS)
    assert (linears and layout is not None) == short, (
        "a kernel of this torch adds in another order than at the short trial: add the case to ROWS or COUNTS of"
        " kernels.py, so that models fall back to today's attention, and look for the new order")
    assert short or not torch_keeps_rows()


def test_a_layer_gives_a_row_alone_the_bits_of_a_row_among_others():
    weight, x = cancelling(576, 9, 1536, torch.bfloat16)
    layer = PackedLinear(weight)
    alone, among = layer(x[:1].contiguous()), layer(x)[:1]
    assert torch.equal(alone, among) or not layer.packed


def test_numbers_that_cancel_show_the_order_of_a_sum():
    weight, x = cancelling(8, 4, 64, torch.float32)
    assert torch.allclose(x.double() @ weight.double().T, torch.zeros(4, 8, dtype=torch.float64), atol=1e-5)
    halves = x[:, :32] @ weight[:, :32].T + x[:, 32:] @ weight[:, 32:].T
    at_once = sum(x[:, i, None] * weight[None, :, i] for i in range(64))
    assert (halves != at_once).float().mean() > .5


@pytest.fixture
def onednn(monkeypatch):
    """Linear layers are oneDNN's, as on a machine without a compiler."""
    monkeypatch.setattr(weights, "dense_code", lambda dtype: None)


@pytest.fixture
def tried_again():
    """Trials are forgotten before and after."""
    kernels.layout_for.cache_clear()
    yield
    kernels.layout_for.cache_clear()


@pytest.mark.parametrize("broken", ["linear_agrees", "keys_agree", "values_agree"])
def test_a_model_on_a_machine_that_fails_a_trial_takes_the_other_attention(broken, monkeypatch, tried_again, onednn):
    monkeypatch.setattr(kernels, broken, lambda *about: False)
    model = Transformer.random(SMALL, dtype=torch.bfloat16)
    assert not model.batch_invariant
    assert model.rope[0].dtype == torch.bfloat16


def test_a_compiled_attention_that_fails_its_trial_is_replaced_by_torchs_kernels(monkeypatch, tried_again):
    monkeypatch.setattr(kernels, "paths_agree", lambda attention: False)
    model = Transformer.random(HEADS_OF_64, dtype=torch.bfloat16)
    assert model.batch_invariant == torch_keeps_rows()
    assert not model.compiled_attention


@both
def test_a_trial_notices_compiled_code_whose_bits_depend_on_the_rows(dtype):
    attention = path_attention(6, 2, 64, dtype)
    if attention is None:                          # tests/models/llama/test_path_attention.py says where
        return
    one_bit = replace(attention, attend=lambda rows, qkv, keys, values, stride, out: (
        attention.attend(rows, qkv, keys, values, stride, out), flip(out if rows._obj.rows == 1 else None))[1])
    assert kernels.paths_agree(attention)
    assert not kernels.paths_agree(one_bit)


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(8, 2, 256), (4, 4, 384), (96, 8, 128)])
def test_wide_heads_and_many_heads_pass_the_trial_in_single_precision(heads, kv_heads, head_dim):
    attention = path_attention(heads, kv_heads, head_dim, torch.float32)
    if attention is None:
        return
    assert kernels.paths_agree(attention)


def flip(address: int | None) -> int:
    """Changes the last bit of the 16 bits that are stored first: the last one of a number in either dtype."""
    if address is not None:
        number = ctypes.c_uint16.from_address(address)
        number.value ^= 1
    return 0


def test_a_trial_notices_a_kernel_whose_sum_depends_on_the_rows(monkeypatch):
    product = torch.bmm

    def by_halves(a, b, **options):
        if a.shape[1] < 20:
            return product(a, b)
        half = a.shape[2] // 2
        return product(a[..., :half], b[:, :half]) + product(a[..., half:], b[:, half:])

    layout = Layout.of(SMOL.group, SMOL.kv_heads, SMOL.head_dim)
    assert kernels.values_agree(layout, 3, 64, 192, (3, 17)) or not torch_keeps_rows()
    monkeypatch.setattr(torch, "bmm", by_halves)
    assert not kernels.values_agree(layout, 3, 64, 192, (3, 17))


@both
def test_a_trial_notices_an_attention_that_is_no_softmax(dtype, monkeypatch):
    attention = path_attention(6, 2, 64, dtype)
    if attention is None:
        return
    exact = kernels.exact_attention
    assert kernels.paths_agree(attention)
    monkeypatch.setattr(kernels, "exact_attention", lambda q, cache: exact(q, cache) * (1 + 8 * kernels.NEAR[dtype]))
    assert not kernels.paths_agree(attention)


def test_linear_layers_of_our_own_need_no_trial(monkeypatch, tried_again):
    monkeypatch.setattr(kernels, "linear_agrees", lambda *about: False)
    for dtype in (torch.bfloat16, torch.float32):
        model = Transformer.random(HEADS_OF_64, dtype=dtype)
        assert model.batch_invariant == isinstance(model.weights.head, DenseLinear)


def test_in_single_precision_the_compiled_attention_alone_keeps_the_promise(monkeypatch, tried_again, onednn):
    model = Transformer.random(HEADS_OF_64)
    assert model.batch_invariant == model.compiled_attention
    kernels.layout_for.cache_clear()
    monkeypatch.setattr(kernels, "paths_agree", lambda attention: False)
    assert not Transformer.random(HEADS_OF_64).batch_invariant
    kernels.layout_for.cache_clear()
    monkeypatch.setattr(kernels, "paths_agree", lambda attention: True)
    monkeypatch.setattr(kernels, "linear_agrees", lambda *about: False)
    assert not Transformer.random(HEADS_OF_64).batch_invariant


def test_other_heads_in_full_precision_and_bidirectional_models_take_the_other_attention():
    assert not Transformer.random(SMALL).batch_invariant
    assert not Transformer.random(SMALL, dtype=torch.bfloat16).fresh(bidirectional=True).batch_invariant
