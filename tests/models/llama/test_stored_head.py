"""A tied config whose files hold a head of its own gives transformers' logits, and so does one without an embedding."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specdec_lib.hub.load import load_lm
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.stored_head import EMBEDDING, HEAD
from specdec_lib.trees import deterministic_chain
from tests.models.llama.distance import CLOSE, far

FAMILY = "llama3"                                  # its config is tied


@pytest.fixture
def stored(checkpoint, tmp_path):
    """stored(change): a folder of the tied checkpoint whose tensors `change` has altered."""
    def make(change):
        for file in checkpoint(FAMILY).folder.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        tensors = load_file(tmp_path / "model.safetensors")
        change(tensors)
        save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
        return tmp_path
    return make


def other_head(tensors):
    tensors[HEAD] = tensors[EMBEDDING].flip(0).contiguous()


def same_head(tensors):
    tensors[HEAD] = tensors[EMBEDDING].clone()


def head_alone(tensors):
    tensors[HEAD] = tensors.pop(EMBEDDING)


@pytest.mark.parametrize(("change", "tied"), [(other_head, False), (same_head, True), (head_alone, True)])
def test_what_is_stored_decides_whether_the_head_is_the_embedding(stored, words, change, tied):
    folder, text = stored(change), words(30)
    lm = Transformer.load(folder)
    with torch.no_grad():
        want = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(torch.tensor([text])).logits[0]
    assert far(lm(text[:1], deterministic_chain(text[1:])).logits, want) < CLOSE
    assert lm.shape.tied == tied


def test_in_four_bits_a_head_of_its_own_is_read_as_well(stored):
    weights = load_lm(stored(other_head), "int4", "cpu").weights
    assert far(weights.head.dense(), weights.embedding.float().flip(0)) < 0.02
    assert not weights.shape.tied
