"""A head of ours in the speculators format proposes what it was trained to, bit for bit, and a plain reader agrees."""

import json
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import save_file

from specdec_lib.heads import drafter_linear
from specdec_lib.heads.eagle import EagleHead, eagle_head
from specdec_lib.heads.eagle_export import exported_config, exported_tensors, refuse_inexact
from specdec_lib.heads.public_eagle import load_public_eagle
from specdec_lib.models.llama.config import LlamaConfig, Rope
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import ROOT, Draft, Refusal
from tests.heads.published import Plain
from tests.worlds import random_eagle

SIZES = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16,
         "vocab_size": 97, "num_key_value_heads": 2, "initializer_range": 0.2, "max_position_embeddings": 2048,
         "rms_norm_eps": 0.02, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
IDS = (60, 3, 5, 96, 41, 2)                        # not in order: the format's rows rise
TREE = Draft((7, 8, 9, 10, 11, 12), (ROOT, ROOT, 0, 0, 1, 3))


@pytest.fixture(scope="module", params=[False, True], ids=["own output", "tied"])
def model(request, tmp_path_factory):
    torch.manual_seed(2)
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, tie_word_embeddings=request.param)).eval()
    folder = tmp_path_factory.mktemp("target")
    made.save_pretrained(folder)
    return folder, made


def exported(folder, checkpoint, target):
    folder.mkdir(exist_ok=True)
    save_file(exported_tensors(checkpoint.state, len(checkpoint.meta["taps"]), target.weights),
              folder / "model.safetensors")
    config = exported_config(checkpoint.state, checkpoint.meta, target.shape, "tiny", ["LlamaForCausalLM"])
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("taps", [(1, 2, 3), (0, 3)], ids=str)
def test_the_exported_head_has_the_originals_very_logits(taps, dtype, model, tmp_path, words, monkeypatch):
    monkeypatch.setattr(drafter_linear, "uses_codes", lambda *about: False)    # the exported one is in no codes
    target = Transformer.load(model[0], dtype)
    checkpoint = random_eagle(target.shape, taps, IDS)
    there = load_public_eagle(exported(tmp_path / "head", checkpoint, target), target)
    assert there.ids.tolist() == sorted(IDS)
    rise = torch.tensor(IDS).argsort()
    for length in (2, 20):
        mine = EagleHead(checkpoint.state, taps, target.fresh())(words(length), TREE).logits[:, rise]
        assert torch.equal(eagle_head(there, target.fresh())(words(length), TREE).logits, mine)


def test_a_plain_reader_of_the_format_scores_the_exported_head_as_ours(model, tmp_path, words):
    target = Transformer.load(model[0], torch.float64)
    checkpoint = random_eagle(target.shape, (1, 2, 3), IDS)
    folder = exported(tmp_path / "head", checkpoint, target)
    double = transformers.LlamaForCausalLM.from_pretrained(model[0], dtype=torch.float64).eval()
    want = Plain(folder, double, (1, 2, 3)).scores(words(12), TREE)
    mine = EagleHead(checkpoint.state, (1, 2, 3), target)(words(12), TREE).logits[:, torch.tensor(IDS).argsort()]
    assert float((mine - want).abs().max()) < 1e-5 * float(want.abs().max())      # stored in single precision


def test_the_config_says_what_the_head_is(model, tmp_path):
    target = Transformer.load(model[0], torch.float32)
    checkpoint = random_eagle(target.shape, (1, 2, 3), IDS)
    config = exported_config(checkpoint.state, {**checkpoint.meta, "trained_depth": 3}, target.shape, "tiny", ["X"])
    assert config["speculators_model_type"] == config["speculators_config"]["algorithm"] == "eagle3"
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
    assert (config["fc_norm"], config["norm_before_residual"], config["norm_before_fc"], config["norm_output"]) == (
        True, False, False, False)
    assert config["draft_vocab_size"] == len(IDS)
    assert config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 3
    assert config["speculators_config"]["verifier"] == {"name_or_path": "tiny", "architectures": ["X"]}
    tensors = exported_tensors(checkpoint.state, 3, target.weights)
    assert tensors["d2t"].tolist() == [token - place for place, token in enumerate(sorted(IDS))]
    assert tensors["t2d"].nonzero()[:, 0].tolist() == sorted(IDS)
    assert {tensor.dtype for name, tensor in tensors.items() if name not in ("d2t", "t2d")} == {torch.float32}


@pytest.mark.parametrize("rope", [Rope(500.0), Rope(500.0, "linear", 4.0), Rope(1000.0, "llama3", 8.0, 1.0, 4.0, 64),
                                  Rope(1000.0, "yarn", 8.0, 0.5, 16.0, 64, 1.2)],
                         ids=lambda rope: rope.kind)
def test_the_angles_of_the_target_go_along(rope, tmp_path):
    shape = LlamaConfig(layers=4, hidden=24, heads=4, kv_heads=2, head_dim=4, mlp=40, vocab=97, context=64)
    target = Transformer.random(replace(shape, rope=rope))
    there = load_public_eagle(exported(tmp_path / "head", random_eagle(target.shape, (1, 2, 3), IDS), target), target)
    assert there.layout.shape.rope == rope


def test_angles_that_the_format_cannot_have_are_refused(tmp_path):
    rope = Rope(500.0, "longrope", original=64, stretch=(1.0,))
    shape = LlamaConfig(layers=4, hidden=24, heads=4, kv_heads=2, head_dim=4, mlp=40, vocab=97, context=64, rope=rope)
    target = Transformer.random(shape)
    with pytest.raises(Refusal, match="angles are LongRoPE's, which a head in this format cannot have"):
        exported(tmp_path / "head", random_eagle(shape, (1, 2, 3), IDS), target)


def test_the_first_layout_cannot_express_a_head_of_ours():
    with pytest.raises(Refusal, match="divides each tapped hidden state by its own size before fc, and the layout ea"):
        refuse_inexact("eagle3")
    refuse_inexact("speculators", (1, 3), 4)
    with pytest.raises(Refusal, match=r"after the target's norm \(tap 4 of 4\)"):
        refuse_inexact("speculators", (1, 4), 4)
