"""A small draft model stands between the target's embedding and some of its output rows."""

import pytest
import torch

from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import ROOT, Draft, Refusal

SHAPE = LlamaConfig(layers=3, hidden=24, heads=4, kv_heads=2, head_dim=6, mlp=40, vocab=97, context=2048)
TARGET = Transformer.random(SHAPE, seed=2, dtype=torch.float64)
IDS = torch.tensor([2, 3, 5, 40, 96])


def state(*layers):
    """What training starts from: some of the target's own layers."""
    there = {f"layers.{i}.{name}": getattr(TARGET.weights.layers[layer], name).dense()
             for i, layer in enumerate(layers) for name in ("qkv", "out", "gate_up", "down")}
    return there | {"norm": TARGET.weights.norm, "ids": IDS}


def test_the_targets_first_layers_as_a_checkpoint_are_the_targets_first_layers():
    draft, text = Draft((7, 8, 9), (ROOT, ROOT, 0)), (4, 9, 20, 31)
    model = draft_lm(state(0, 1), TARGET.weights)
    want = TARGET.first_layers(2)(text, draft).logits[:, IDS]
    assert float((model(text, draft).logits - want).abs().max()) < 1e-11
    assert model.layers == 2
    assert model(text, draft).best == tuple(IDS[want.argmax(-1)].tolist())


def test_layers_keep_their_order():
    text = (4, 9, 20, 31)
    one, other = (draft_lm(state(*layers), TARGET.weights)(text, Draft()).logits for layers in ((0, 2), (2, 0)))
    assert float((one - other).abs().max()) > 1e-3


def test_a_checkpoint_without_its_tensors_is_refused():
    with pytest.raises(Refusal, match="lacks the tensor layers.0.qkv"):
        draft_lm({"ids": IDS, "norm": TARGET.weights.norm}, TARGET.weights)
