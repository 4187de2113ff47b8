"""Layers in one call are the same layers one by one: every number of the cache, the taps and the logits."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.models.llama import compiled_layers
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.four_bit_weights import fuse_four_bit
from specdec_lib.models.llama.path_attention import has_vectors
from specdec_lib.models.llama.weights import LlamaWeights, random_weights, size_of
from specdec_lib.types import ROOT, Draft

SHAPE = LlamaConfig(layers=5, hidden=96, heads=3, kv_heads=1, head_dim=32, mlp=112, vocab=97, context=512)
TEXT = tuple(range(3, 40))
FED = [Draft(), Draft((5, 6, 7), (ROOT, 0, 1)), Draft((5, 6, 7, 8, 9), (ROOT, ROOT, 0, 1, 2)), Draft()]
KINDS = ["bf16", "fp32", "int4"]
pytestmark = pytest.mark.skipif(not has_vectors(), reason="the C code has no vectors for this processor")


def weights_in(kind: str, shape: LlamaConfig = SHAPE) -> LlamaWeights:
    if kind != "int4":
        return random_weights(shape, dtype={"bf16": torch.bfloat16, "fp32": torch.float32}[kind])
    dice = torch.Generator().manual_seed(0)

    def get(name: str) -> torch.Tensor:
        size = size_of(shape, name)
        return torch.ones(size) if "norm" in name else torch.randn(size, generator=dice) * size[1] ** -0.5

    return fuse_four_bit(shape, get)


def one_by_one(weights: LlamaWeights) -> LlamaWeights:
    """The same weights, whose layers are called one by one."""
    plain = LlamaWeights(weights.shape, weights.embedding, weights.layers, weights.norm, weights.head)
    plain.__dict__["together"] = None
    return plain


def told(lm: Transformer) -> list[torch.Tensor]:
    """Logits, cache and taps after each of several forwards, of a prompt, a chain, a tree and a token."""
    out = []
    for i, draft in enumerate(FED):
        scores = lm(TEXT + tuple(range(50, 50 + i)), draft)
        out += [scores.logits.clone(), lm.cache.kv[:, :, :, :len(lm.cache.rows)].clone()]
        if lm.cache.features is not None:
            out.append(lm.cache.features[:len(lm.cache.rows)].clone())
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("taps", [(), (0, 2, 5), (1, 3, 4)])
def test_one_call_gives_every_bit_of_the_layers_one_by_one(taps, kind):
    weights = weights_in(kind)
    assert weights.together is not None
    mine, other = told(Transformer(weights, taps)), told(Transformer(one_by_one(weights), taps))
    assert len(mine) == len(other) == len(FED) * (3 if taps else 2)
    assert all(map(torch.equal, mine, other))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", [1, 2, 4])
def test_rows_that_left_early_climb_to_the_same_bits(layer, kind):
    weights, logits = weights_in(kind), []
    for own in (weights, one_by_one(weights)):
        lm = Transformer(own)
        low = lm.exit(layer)
        low(TEXT, Draft((5, 6), (ROOT, 0)))
        logits.append(lm(TEXT, Draft((5, 6), (ROOT, 0))).logits)
    assert torch.equal(*logits)


@pytest.mark.parametrize(("first", "last"), [(0, 5), (0, 1), (1, 3), (2, 5), (3, 3)])
def test_any_run_of_layers_leaves_its_input_as_it_was(first, last):
    weights, lm = weights_in("fp32"), Transformer(weights_in("fp32"))
    lm(TEXT, Draft())
    x = torch.randn(2, SHAPE.hidden, generator=torch.Generator().manual_seed(1))
    kept, view = x.clone(), lm.view(len(TEXT) - 2, len(TEXT))
    found = weights.together(x, [compiled_layers.CachedRows(lm.cache.kv.clone(), view.paths)], first, last)
    assert torch.equal(x, kept)
    assert torch.equal(found, x) == (first == last)


def test_other_layers_than_compiled_ones_of_one_code_are_not_joined(monkeypatch):
    layers = [layer.fused for layer in weights_in("fp32").layers]
    others = [layer.fused for layer in weights_in("bf16").layers]
    assert compiled_layers.compiled_layers(layers) is not None
    assert compiled_layers.compiled_layers([*layers, None]) is None
    assert compiled_layers.compiled_layers([*layers, *others]) is None
    assert compiled_layers.compiled_layers([]) is None
    monkeypatch.setattr(compiled_layers, "compiled_through", lambda: None)
    assert compiled_layers.compiled_layers(layers) is None


def test_norms_of_heads_and_kernels_of_others_keep_layers_apart():
    assert weights_in("fp32").together is not None
    assert random_weights(SHAPE, dtype=torch.float64).together is None
    assert weights_in("fp32", replace(SHAPE, head_norms=True)).together is None


@pytest.mark.parametrize("part", ["multiply", "attend", "finish"])
def test_a_part_without_memory_is_a_memory_error(part):
    weights, lm = weights_in("fp32"), Transformer(weights_in("fp32"))
    lm(TEXT, Draft())
    paths, together = lm.view(len(TEXT) - 1, len(TEXT)).paths, weights.together
    fails = compiled_layers.ctypes.CFUNCTYPE(compiled_layers.ctypes.c_int)(lambda: 1)
    if part == "attend":
        paths = SimpleNamespace(attend=fails, size=paths.size, record=paths.record)
    else:
        place = ("multiply", "finish").index(part)
        own = list(together.functions)
        own[place] = compiled_layers.address_of(fails)
        together.functions = tuple(own)
    with pytest.raises(MemoryError, match="no memory"):
        together(torch.zeros(1, SHAPE.hidden), [compiled_layers.CachedRows(lm.cache.kv, paths)], 0, 5)
