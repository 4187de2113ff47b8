"""Logits computed on cached rows equal logits recomputed from scratch, for random sequences of contexts and drafts."""

from functools import cache

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import ROOT, Draft

VOCAB, LAYERS, CLOSE = 5, 3, 1e-9                  # few tokens, so that contexts and drafts often share a beginning
TOKENS = st.integers(0, VOCAB - 1)
PROPERTY = settings(max_examples=25, deadline=None, derandomize=True)


@cache
def target() -> Transformer:
    return Transformer.random(LlamaConfig(LAYERS, 16, 4, 2, 4, 24, VOCAB, 256), dtype=torch.float64)


@st.composite
def trees(draw, chain: bool, like: Draft | None = None) -> Draft:
    """A chain, or a tree of at most 6 nodes whose siblings differ; with the tokens of `like` on other parents."""
    tokens, parents = [], []
    for token in draw(st.lists(TOKENS, max_size=6)) if like is None else like.tokens:
        parent = len(tokens) - 1 if chain else draw(st.integers(ROOT, len(tokens) - 1))
        if (parent, token) not in zip(parents, tokens, strict=True):
            tokens.append(token)
            parents.append(parent)
    return Draft(tuple(tokens), tuple(parents))


@st.composite
def decodes(draw, chain: bool) -> list[tuple[tuple[int, ...], Draft]]:
    """(context, draft) of up to 6 calls: then a path is accepted and a token added, or the context stays, or shrinks.

    Where the context stays, the next draft has the tokens of the last one on other parents; `again` redraws them, too.
    """
    calls, tokens = [], tuple(draw(st.lists(TOKENS, min_size=1, max_size=6)))
    draft = after = None
    for _ in range(draw(st.integers(1, 6))):
        draft = draw(trees(chain, draft if after == "repeat" else None))
        calls.append((tokens, draft))
        after = draw(st.sampled_from(("accept", "repeat", "again", "go back")))
        if after == "accept":
            tokens += spelled(draft, draw(st.integers(ROOT, len(draft) - 1))) + (draw(TOKENS),)
        elif after == "go back":
            tokens = tokens[:draw(st.integers(1, len(tokens)))] + (draw(TOKENS),)
    return calls


def spelled(draft: Draft, node: int) -> tuple[int, ...]:
    """The tokens from the root to this node."""
    return tuple(draft.tokens[i] for i in draft.path(node))


def recomputed(lm: Transformer, tokens: tuple[int, ...], draft: Draft) -> torch.Tensor:
    """Logits [1 + nodes, V] with an empty cache for every row: each path is read as plain text."""
    return torch.cat([lm.fresh()(tokens + spelled(draft, node), Draft()).logits for node in range(ROOT, len(draft))])


def assert_equal(logits: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(logits, wanted, rtol=0, atol=CLOSE)


@PROPERTY
@given(decodes(chain=True))
def test_chains_on_cached_rows_score_as_recomputed(calls):
    lm = target().fresh()
    for tokens, draft in calls:
        assert_equal(lm(tokens, draft).logits, recomputed(lm, tokens, draft))


@PROPERTY
@given(decodes(chain=False))
def test_trees_on_cached_rows_score_as_recomputed(calls):
    lm = target().fresh()
    for tokens, draft in calls:
        assert_equal(lm(tokens, draft).logits, recomputed(lm, tokens, draft))


@PROPERTY
@given(decodes(chain=False), st.lists(st.integers(1, LAYERS), min_size=6, max_size=6))
def test_an_early_exit_and_the_full_model_on_the_same_rows_score_as_recomputed(calls, depths):
    full = target().fresh()
    exits = {depth: full.exit(depth) for depth in range(1, LAYERS)} | {LAYERS: full}
    for (tokens, draft), depth in zip(calls, depths, strict=False):
        lm = exits[depth]
        assert_equal(lm(tokens, draft).logits, recomputed(target().first_layers(depth), tokens, draft))


@PROPERTY
@given(decodes(chain=False))
def test_tapped_hidden_states_on_cached_rows_are_as_recomputed(calls):
    lm = Transformer(target().weights, taps=(0, 2, LAYERS))
    for tokens, draft in calls:
        lm(tokens, draft)
        alone = lm.fresh()
        alone.prefill(tokens)
        assert_equal(lm.features(tokens), alone.features(tokens)[:len(lm.features(tokens))])


@PROPERTY
@given(decodes(chain=False))
def test_a_row_in_the_cache_is_not_fed_again(calls):
    lm = target().fresh()
    for tokens, draft in calls:
        lm(tokens, draft)
        fed = lm.fed
        lm(tokens, draft)
        assert lm.fed == fed
