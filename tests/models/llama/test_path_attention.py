"""The compiled attention is attention, keeps a row's bits for all shapes, and is left out where it cannot be had."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.models.llama import dense_linear, kernels
from specdec_lib.models.llama.compiled import find_compiler
from specdec_lib.models.llama.compiled_layers import compiled_through
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.forward import rotate
from specdec_lib.models.llama.path_attention import compiled_for, has_vectors, path_attention
from specdec_lib.models.llama.row_stats import compiled_stats
from specdec_lib.types import ROOT, Draft
from tests.processor import torch_keeps_rows

TREE = (ROOT, ROOT, 0, 1, 2, 2, 5, 3, 0, 8)
DTYPES = [torch.bfloat16, torch.float32]
COMPILES = dict.fromkeys(DTYPES, find_compiler() is not None and has_vectors())
both = pytest.mark.parametrize("dtype", DTYPES, ids=["bf16", "fp32"])
HEADS = [(9, 3, 64), (32, 8, 128), (4, 4, 96), (14, 2, 64), (8, 1, 128), (11, 1, 32)]        # and key heads, and size


@both
@pytest.mark.parametrize("heads", HEADS)
def test_there_is_a_compiled_attention_wherever_a_compiler_and_the_vector_instructions_are(heads, dtype):
    assert (path_attention(*heads, dtype) is not None) == COMPILES[dtype]
    assert path_attention(*heads[:2], 80, dtype) is None       # no multiple of 32
    assert path_attention(*heads, torch.float64) is None


def fed(heads, kv_heads, d, rows, columns, dtype=torch.bfloat16, seed=0):
    """Cache, queries with keys and values, and angles, at random."""
    dice = torch.Generator().manual_seed(seed)
    angles = torch.randn(rows, d // 2, generator=dice)
    cos, sin = angles.cos().repeat(1, 2), torch.cat((-angles.sin(), angles.sin()), -1)
    return (torch.randn(2, kv_heads, columns, d, generator=dice).to(dtype),
            torch.randn(rows, heads + 2 * kv_heads, d, generator=dice).to(dtype) / 2, cos, sin)


def exact(cache, qkv, cos, sin, heads, context, parents, first, both_ways=False):
    """In double precision each row over its path, or over all nodes; fills the cache."""
    kv_heads = cache.shape[1]
    turned = qkv[:, :heads + kv_heads].transpose(0, 1).float().contiguous()
    rotate(turned, cos, sin)
    turned = turned.to(qkv.dtype)
    cache[0, :, first:first + len(qkv)] = turned[heads:]
    cache[1, :, first:first + len(qkv)] = qkv[:, heads + kv_heads:].transpose(0, 1)
    keys, values = cache.double().repeat_interleave(heads // kv_heads, 1)
    out = []
    for row in range(len(qkv)):
        seen, node = first + row + 1, first + row - context
        path: list[int] = []
        if parents and node >= 0:
            seen = context
            while node != ROOT:
                path, node = [context + node, *path], parents[node]
        if both_ways and node >= 0:
            seen = first + len(qkv)
        columns = [*range(seen), *path]
        weights = torch.softmax(torch.einsum("hd,hcd->hc", turned[:heads, row].double(), keys[:, columns]), -1)
        out.append(torch.einsum("hc,hcd->hd", weights, values[:, columns]).flatten())
    return torch.stack(out)


@both
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(("context", "before", "parents"), [(1, 0, TREE), (70, 3, TREE), (15, 15, ()), (40, 0, ())])
def test_it_is_the_softmax_over_each_rows_path_with_rotated_queries_and_keys(heads, context, before, parents, dtype):
    """`before` rows of the context are fed together with the nodes, or with 17 more of a text."""
    attention, first = path_attention(*heads, dtype), context - before
    if attention is None:
        return
    rows = before + (len(parents) or 17)
    cache, qkv, cos, sin = fed(*heads, rows, context + rows, dtype)
    plain, near = cache.clone(), 1e-5 if dtype == torch.float32 else .02
    expected = exact(plain, qkv, cos, sin, heads[0], context, parents, first)
    out = attention.rows(slice(first, first + rows), context, parents, cos, sin)(qkv, *cache)
    assert torch.allclose(out.double(), expected, atol=near)
    assert torch.equal(cache[1], plain[1])
    assert torch.allclose(cache[0].float(), plain[0].float(), rtol=near / 2, atol=near / 20)     # the last bit


@both
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(("context", "before", "count"), [(20, 5, 0), (1, 1, 1), (0, 0, 2), (70, 3, 8), (37, 0, 33),
                                                          (900, 0, 8)])
def test_rows_that_see_both_ways_attend_to_every_column(heads, context, before, count, dtype):
    """`before` rows of the context, which see what is before them, are fed together with the nodes."""
    attention, first, rows = path_attention(*heads, dtype), context - before, before + count
    if attention is None:
        return
    cache, qkv, cos, sin = fed(*heads, rows, context + count, dtype)
    plain, asked, near = cache.clone(), qkv.clone(), 1e-5 if dtype == torch.float32 else .02
    expected = exact(plain, qkv, cos, sin, heads[0], context, (), first, both_ways=True)
    out = attention.block(slice(first, first + rows), context, cos, sin)(qkv, *cache)
    assert torch.allclose(out.double(), expected, atol=near)
    causal = attention.rows(slice(first, first + rows), context, (), cos, sin)(asked, *cache)
    assert torch.equal(out[:before], causal[:before])
    assert count < 2 or not torch.equal(out[before:-1], causal[before:-1])


@both
@pytest.mark.parametrize("heads", HEADS)
def test_a_row_keeps_its_bits_for_every_shape_of_heads(heads, dtype):
    attention = path_attention(*heads, dtype)
    for context, parents in ((1, TREE), (15, TREE), (64, (*range(ROOT, 20), ROOT, 4, 22)), (130, (ROOT,))):
        assert attention is None or kernels.paths_agree(attention, context, parents)


@both
def test_scores_that_have_no_memory_are_an_error(dtype):
    if COMPILES[dtype]:
        attention = replace(path_attention(9, 3, 64, dtype), attend=lambda *places: 1)
        cache, qkv, cos, sin = fed(9, 3, 64, 1, 8, dtype)
        with pytest.raises(MemoryError):
            attention.rows(slice(5, 6), 6, (), cos, sin)(qkv, *cache)


@both
def test_without_a_compiler_models_keep_their_promise_and_say_that_nothing_is_compiled(dtype, monkeypatch, tmp_path):
    shape = LlamaConfig(layers=1, hidden=64, heads=4, kv_heads=2, head_dim=64, mlp=128, vocab=64, context=512)
    forgotten = kernels.layout_for, compiled_for, compiled_stats, dense_linear.compiled_with, compiled_through
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    for one in forgotten:
        one.cache_clear()
    try:
        model = Transformer.random(shape, dtype=dtype)
        alone = model.fresh()((1, 2, 3, 4), Draft()).logits[0]
        among = model.fresh()((1, 2, 3), Draft((4, 5), (ROOT, ROOT))).logits[1]
    finally:
        for one in forgotten:
            one.cache_clear()
    assert not model.compiled_attention
    assert model.batch_invariant == (dtype == torch.bfloat16 and torch_keeps_rows())
    assert torch.equal(alone, among) or not model.batch_invariant
    assert not list(tmp_path.iterdir())
