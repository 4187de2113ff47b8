"""What is stored under other names, joined, or without its factors is read as a Llama's, with transformers' logits."""

import json
from copy import deepcopy

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specdec_lib.checkpoints.fingerprint import weight_sample
from specdec_lib.hub.load import load_lm
from specdec_lib.integrations.opened_model import llama_view
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.families import EMBEDDING, HEAD
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Draft, Refusal
from tests.models.llama.distance import CLOSE, far

TIED = ("llama3", "granite")


@pytest.fixture
def stored(checkpoint, tmp_path):
    """stored(family, change, **settings): a folder of the checkpoint whose tensors `change` has altered."""
    def make(family, change=lambda tensors: None, **settings):
        for file in checkpoint(family).folder.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        tensors = load_file(tmp_path / "model.safetensors")
        change(tensors)
        save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | settings))
        return tmp_path
    return make


def other_head(tensors):
    tensors[HEAD] = tensors[EMBEDDING].flip(0).contiguous()


def same_head(tensors):
    tensors[HEAD] = tensors[EMBEDDING].clone()


def head_alone(tensors):
    tensors[HEAD] = tensors.pop(EMBEDDING)


@pytest.mark.parametrize("family", TIED)
@pytest.mark.parametrize(("change", "tied"), [(other_head, False), (same_head, True), (head_alone, True)])
def test_what_is_stored_decides_whether_the_head_is_the_embedding(stored, words, family, change, tied):
    folder, text = stored(family, change), words(30)
    lm = Transformer.load(folder)
    with torch.no_grad():
        want = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(torch.tensor([text])).logits[0]
    assert far(lm(text[:1], deterministic_chain(text[1:])).logits, want) < CLOSE
    assert lm.shape.tied == (tied and family == "llama3")            # Granite multiplies one of the two


def test_in_four_bits_a_head_of_its_own_is_read_as_well(stored):
    weights = load_lm(stored("llama3", other_head), "int4", "cpu").weights
    assert far(weights.head.dense(), weights.embedding.float().flip(0)) < 0.02
    assert not weights.shape.tied


@pytest.mark.parametrize("family", ["phi3", "granite"])
def test_hidden_states_are_transformers(checkpoint, words, family):
    tiny, text = checkpoint(family), words(20)
    lm = Transformer.load(tiny.folder)
    lm.tap((0, 2, 3))
    lm(text[:1], deterministic_chain(text[1:]))
    lm.prefill(text)
    assert far(lm.features(text), tiny.states(text)[:, [0, 2, 3]]) < CLOSE


@pytest.mark.parametrize("family", ["phi3", "granite"])
def test_a_model_in_transformers_shows_drafters_the_weights_that_our_decoder_has(checkpoint, family):
    ours, view = Transformer.load(checkpoint(family).folder).weights, llama_view(checkpoint(family).model)
    assert view.shape == ours.shape
    assert torch.equal(view.embedding, ours.embedding)
    assert torch.equal(view.head.dense(), ours.head.dense())
    for one, other in zip(view.layers, ours.layers, strict=True):
        assert all(torch.equal(getattr(one, name).dense(), getattr(other, name).dense())
                   for name in ("qkv", "out", "gate_up", "down"))


@pytest.mark.parametrize("family", ["phi3", "granite"])
def test_of_a_model_in_half_precision_drafters_see_half_precision(checkpoint, family, tmp_path):
    model = deepcopy(checkpoint(family).model).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    ours, view = Transformer.load(tmp_path, torch.bfloat16).weights, llama_view(model)
    assert view.dtype == view.head.dense().dtype == torch.bfloat16
    assert torch.equal(view.embedding, ours.embedding)
    assert torch.equal(view.head.dense(), ours.head.dense())
    assert weight_sample(view) == weight_sample(ours)


def too_short(tensors):
    name = "model.layers.1.self_attn.qkv_proj.weight"
    tensors[name] = tensors[name][:-8].contiguous()


def test_joined_matrices_of_another_size_are_refused(stored):
    with pytest.raises(Refusal, match=r"qkv_proj\.weight is 72 x 48 and by its config\.json 80 x 48"):
        Transformer.load(stored("phi3", too_short))


@pytest.mark.parametrize("value", [0, "0.2", float("inf"), -1.0])
def test_a_factor_that_no_model_can_have_is_refused(stored, value):
    with pytest.raises(Refusal, match="residual_multiplier is a number above 0, and its config.json says"):
        Transformer.load(stored("granite", residual_multiplier=value))


def test_a_factor_that_is_not_there_is_one(stored, words):
    text = words(20)
    one, none = (Transformer.load(stored("granite", residual_multiplier=value))(text, Draft()).logits
                 for value in (1.0, None))
    assert torch.equal(one, none)
