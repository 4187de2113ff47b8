"""An exit head reads a layer's stream through its adapter; it belongs to the layers it was trained for."""

import pytest
import torch
import torch.nn.functional as F

from specdec_lib.heads.exits import exit_heads
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import ROOT, Draft, Refusal
from tests.worlds import random_exits

SHAPE = LlamaConfig(layers=3, hidden=24, heads=4, kv_heads=2, head_dim=6, mlp=40, vocab=97, context=2048)
IDS = (2, 3, 5, 40, 41, 60, 96)
TARGET = Transformer.random(SHAPE, seed=2, dtype=torch.float64)
CHECKPOINT = random_exits(SHAPE, (1, 2), IDS)
TREE = Draft((7, 8, 9), (ROOT, ROOT, 0))


def unit(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE.eps)


def by_hand(layer, tokens):
    """Logits after plain text: the model cut at this layer, then adapter, norm and rows."""
    target = TARGET.fresh()
    target.tap((layer,))
    target.prefill(tokens)
    x, w = target.features(tokens)[-1, 0], {name: tensor.double() for name, tensor in CHECKPOINT.state.items()}
    x = x + w[f"exit.{layer}.up"] @ F.silu(w[f"exit.{layer}.down"] @ unit(x))
    return TARGET.weights.head.dense()[list(IDS)] @ (unit(x) * w[f"exit.{layer}.norm"])


@pytest.mark.parametrize("layer", [1, 2])
def test_an_exit_with_a_head_scores_as_the_shortened_model_with_that_head(layer):
    target, text = TARGET.fresh(), (4, 9, 20, 31)
    early = target.exit(layer, exit_heads(CHECKPOINT.state, (1, 2), target.weights)[layer])
    scores = early(text, TREE)
    for row, path in enumerate([(), (7,), (8,), (7, 9)]):
        assert float((scores.logits[row] - by_hand(layer, text + path)).abs().max()) < 1e-11
    assert scores.best == tuple(IDS[column] for column in scores.logits.argmax(-1))


def test_a_head_of_an_exit_leaves_the_full_model_as_it_was():
    target, text = TARGET.fresh(), (4, 9, 20, 31)
    target.exit(1, exit_heads(CHECKPOINT.state, (1,), target.weights)[1])(text, TREE)
    full = target(text, TREE)
    assert full.ids is None
    assert torch.equal(full.logits.argmax(-1), TARGET.fresh()(text, TREE).logits.argmax(-1))
    assert float((full.logits - TARGET.fresh()(text, TREE).logits).abs().max()) < 1e-11


def test_a_fresh_exit_keeps_its_head_and_shares_no_rows():
    target = TARGET.fresh()
    early = target.exit(2, exit_heads(CHECKPOINT.state, (2,), target.weights)[2])
    assert torch.equal(early.fresh()((1, 2, 3), TREE).logits, early((1, 2, 3), TREE).logits)
    assert early.fresh().cache is not target.cache


@pytest.mark.parametrize(("layers", "word"), [((4,), "has 3"), ((3,), "lacks the tensor exit.3.down"), ((), "no exit")])
def test_exits_that_do_not_fit_the_target_are_refused(layers, word):
    with pytest.raises(Refusal, match=word):
        exit_heads(CHECKPOINT.state, layers, TARGET.weights)
