"""A row's bits do not depend on the rows beside it: chains and trees against plain decoding, bit for bit."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib.models.llama import invariant_attention
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.dense_linear import dense_code
from specdec_lib.models.llama.invariant_attention import Layout, attend_in_order, parts_of
from specdec_lib.models.llama.packed_linear import packs_dtype
from specdec_lib.models.llama.path_attention import path_attention
from specdec_lib.types import ROOT, Draft
from tests.processor import torch_keeps_rows

SHAPE = LlamaConfig(layers=2, hidden=192, heads=6, kv_heads=2, head_dim=64, mlp=1536, vocab=97, context=2048)
SHAPES = {"compiled": SHAPE, "compiled, heads normed": replace(SHAPE, heads=8, head_norms=True),
          "torch's kernels": replace(SHAPE, head_dim=48)}        # no multiple of 32
MODELS = {kind: Transformer.random(shape, seed=1, dtype=torch.bfloat16) for kind, shape in SHAPES.items()}
MODELS["single precision"] = Transformer.random(SHAPE, seed=1)
ALONE = {kind: model.fresh() for kind, model in MODELS.items()}  # feed texts one token at a time; keep the last one's
TEXT = tuple(torch.randint(97, (1200,), generator=torch.Generator().manual_seed(2)).tolist())
BORDERS = [1, 2, 63, 64, 65, 200, *range(490, 515), *range(1004, 1027), 1100]      # blocks end at 512 and 1,024
kinds = pytest.mark.parametrize("kind", MODELS)


@st.composite
def trees(draw, most=24):
    """Drafts of up to `most` nodes, whose siblings differ."""
    parents = [draw(st.integers(ROOT, node - 1)) for node in range(draw(st.integers(1, most)))]
    tokens = [sum(parent == other for other in parents[:node]) * 7 % 97 for node, parent in enumerate(parents)]
    return Draft(tuple(tokens), tuple(parents))


def path_to(draft: Draft, node: int) -> tuple[int, ...]:
    out: tuple[int, ...] = ()
    while node != ROOT:
        out, node = (draft.tokens[node], *out), draft.parents[node]
    return out


def plain(kind: str, context: tuple[int, ...], path: tuple[int, ...]) -> torch.Tensor:
    """The logits after the path when its tokens are fed one by one."""
    for stop in range(len(context), len(context) + len(path) + 1):
        logits = ALONE[kind]((*context, *path)[:stop], Draft()).logits[0]
    return logits.clone()


def same(kind: str, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal bits; close numbers where no promise is made: without packed bfloat16, or without compiled attention."""
    return torch.equal(a, b) if MODELS[kind].batch_invariant else torch.allclose(a, b, atol=.2)


def test_the_promise_is_made_in_single_precision_wherever_attention_is_compiled():
    model = MODELS["single precision"]
    compiled = path_attention(SHAPE.heads, SHAPE.kv_heads, SHAPE.head_dim, torch.float32)
    assert model.batch_invariant == (compiled is not None and packs_dtype(torch.float32))


def test_the_promise_is_made_wherever_bfloat16_is_compiled_or_packed():
    """Torch's kernels alone break it on processors with AMX: there a sum over values depends on the rows beside it."""
    halves = [model for model in MODELS.values() if model.dtype == torch.bfloat16 and (
        model.compiled_attention or torch_keeps_rows())]
    expected = dense_code(torch.bfloat16) is not None or packs_dtype(torch.bfloat16)
    assert {model.batch_invariant for model in halves} <= {expected}, (
        "this version of torch or oneDNN adds in another order than `kernels.py` asks for: bfloat16 falls back to"
        " attention whose bits depend on the other rows; find the new order and lay columns out for it")


@kinds
@settings(max_examples=25, deadline=None, derandomize=True)
@given(draft=trees(), context=st.sampled_from(BORDERS), at=st.integers(-1, 23), once=st.booleans())
def test_a_tree_row_has_the_bits_of_plain_decoding(kind, draft, context, at, once):
    node = min(at, len(draft) - 1)
    model = MODELS[kind].fresh()
    if not once:                                   # otherwise prompt and tree go through the layers together
        model.prefill(TEXT[:context])
    got = model(TEXT[:context], draft).logits[node + 1]
    assert same(kind, got, plain(kind, TEXT[:context], path_to(draft, node)))


@kinds
@settings(max_examples=10, deadline=None, derandomize=True)
@given(context=st.sampled_from(BORDERS), size=st.integers(1, 40))
def test_a_chain_row_has_the_bits_of_plain_decoding(kind, context, size):
    draft = Draft(TEXT[context:context + size], tuple(range(ROOT, size - 1)))
    got = MODELS[kind].fresh()(TEXT[:context], draft).logits
    assert same(kind, got[size], plain(kind, TEXT[:context], draft.tokens))
    assert same(kind, got[0], plain(kind, TEXT[:context], ()))


@kinds
def test_accepted_nodes_leave_the_cache_of_plain_decoding(kind):
    """The accepted path of a tree moves to its place; what follows has plain decoding's bits."""
    draft = Draft((5, 6, 7, 8, 9), (ROOT, ROOT, 1, 1, 3))
    model, context = MODELS[kind].fresh(), TEXT[:101]
    model(context, draft)
    after = (*context, 6, 8, 9, 3)
    assert same(kind, model(after, Draft((1, 2), (ROOT, ROOT))).logits[0], plain(kind, after, ()))


@kinds
def test_a_draft_that_grows_level_by_level_has_the_bits_of_one_that_is_scored_at_once(kind):
    whole = Draft((5, 6, 7, 8, 9, 4), (ROOT, ROOT, 0, 1, 2, 3))
    at_once, by_level = MODELS[kind].fresh(), MODELS[kind].fresh()
    expected = at_once(TEXT[:130], whole).logits
    for size in (2, 4, 6):
        got = by_level(TEXT[:130], Draft(whole.tokens[:size], whole.parents[:size])).logits
    assert same(kind, got, expected)


@kinds
def test_an_early_exit_leaves_the_bits_of_the_full_model(kind):
    model = MODELS[kind].fresh()
    early = model.exit(1)
    draft = Draft((5, 6, 7, 8), (ROOT, 0, 0, 2))
    for size in range(1, 5):
        early(TEXT[:77], Draft(draft.tokens[:size], draft.parents[:size]))
    got = model(TEXT[:77], draft).logits
    for node in range(-1, 4):
        assert same(kind, got[node + 1], plain(kind, TEXT[:77], path_to(draft, node)))


@kinds
def test_any_number_of_threads_gives_the_same_bits(kind):
    draft, threads, found = Draft((5, 6, 7), (ROOT, ROOT, 0)), torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):                    # a fifth of these rows ends within a row
            torch.set_num_threads(count)
            found.append(MODELS[kind].fresh()(TEXT[:301], draft).logits)
    finally:
        torch.set_num_threads(threads)
    assert all(same(kind, found[0], other) for other in found[1:])


@pytest.mark.parametrize("context", [100, 101, 509, 1020, 1023])
def test_both_layouts_of_a_tree_are_attention(context, monkeypatch):
    """Against the softmax over each row's own path in double precision; borders of a block take the second layout."""
    parents, group, kv_heads, d = (ROOT, ROOT, 0, 1, 2, 2, 5), 2, 2, 16
    layout, nodes = Layout.of(group, kv_heads, d), len(parents)
    held = context + nodes
    columns = layout.room(held, nodes)
    dice = torch.Generator().manual_seed(context)
    q, k, v = (torch.randn(heads, rows, d, generator=dice).bfloat16() * .5
               for heads, rows in ((4, nodes + 1), (2, columns), (2, columns)))
    expected = []
    for row in range(nodes + 1):
        path, node = [], row - 1
        while node != ROOT:
            path, node = [context + node, *path], parents[node]
        seen = [*range(context), *path]
        keys, values = (x[:, seen].double().repeat_interleave(group, 0) for x in (k, v))
        weights = torch.softmax(torch.einsum("hd,hcd->hc", q[:, row].double(), keys), -1)
        expected.append(torch.einsum("hc,hcd->hd", weights, values).flatten())
    found = []
    for block in (invariant_attention.BLOCK, 1):                 # no pair fits into a block of one column
        monkeypatch.setattr(invariant_attention, "BLOCK", block)
        parts = parts_of(layout, context - 1, held, held, context, parents)
        found.append(attend_in_order(q, k, v.clone(), parts))
        assert torch.allclose(found[-1].double(), torch.stack(expected), atol=.02)
    assert any(part.path is not None for part in parts)
    assert same("torch's kernels", *found)


@pytest.mark.parametrize("context", range(470, 514, 4))
def test_no_pair_crosses_the_border_of_a_block(context, monkeypatch):
    """The deepest row sums values that cancel, so its result is rounding and shows any other order of the sum."""
    depth, group, kv_heads, d = 24, 3, 3, 64
    parents, half = (*range(ROOT, depth - 1), ROOT), (context + depth) // 2
    held, layout = context + depth + 1, Layout.of(group, kv_heads, d)
    dice = torch.Generator().manual_seed(context)
    q, k, v = (torch.randn(heads, rows, d, generator=dice).bfloat16() * .5 for heads, rows in (
        (9, depth + 2), (kv_heads, layout.room(held, depth + 1)), (kv_heads, layout.room(held, depth + 1))))
    other = torch.randperm(half, generator=dice)
    k[:, half:2 * half], v[:, half:2 * half] = k[:, other], -v[:, other]
    found = []
    for block in (invariant_attention.BLOCK, 1):
        monkeypatch.setattr(invariant_attention, "BLOCK", block)
        parts = parts_of(layout, context - 1, held, held, context, parents)
        found.append(attend_in_order(q, k, v.clone(), parts)[depth])
    assert same("torch's kernels", *found)
