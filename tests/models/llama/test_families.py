"""What is stored under other names, joined, or without its factors is read as a Llama's, with transformers' logits."""

import json
from copy import deepcopy

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specdec_lib.checkpoints.fingerprint import weight_sample
from specdec_lib.hub.load import load_lm, parameter_count
from specdec_lib.integrations.opened_model import llama_view
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.families import EMBEDDING, HEAD, text_name
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import ROOT, Draft, Refusal
from tests.conftest import SIZES, Checkpoint
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


@pytest.mark.parametrize("family", ["phi3", "phi4 mini", "granite", "smollm3"])
def test_hidden_states_are_transformers(checkpoint, words, family):
    tiny, text = checkpoint(family), words(20)
    lm = Transformer.load(tiny.folder)
    lm.tap((0, 2, 3))
    lm(text[:1], deterministic_chain(text[1:]))
    lm.prefill(text)
    assert far(lm.features(text), tiny.states(text)[:, [0, 2, 3]]) < CLOSE


@pytest.mark.parametrize("family", ["phi3", "phi4 mini", "granite", "smollm3"])
def test_a_model_in_transformers_shows_drafters_the_weights_that_our_decoder_has(checkpoint, family):
    ours, view = Transformer.load(checkpoint(family).folder).weights, llama_view(checkpoint(family).model)
    assert view.shape == ours.shape
    assert torch.equal(view.embedding, ours.embedding)
    assert torch.equal(view.head.dense(), ours.head.dense())
    for one, other in zip(view.layers, ours.layers, strict=True):
        assert one.turned == other.turned
        assert all(torch.equal(getattr(one, name).dense(), getattr(other, name).dense())
                   for name in ("qkv", "out", "gate_up", "down"))


@pytest.mark.parametrize("family", ["phi3", "phi4 mini", "granite", "smollm3"])
def test_of_a_model_in_half_precision_drafters_see_half_precision(checkpoint, family, tmp_path):
    model = deepcopy(checkpoint(family).model).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    ours, view = Transformer.load(tmp_path, torch.bfloat16).weights, llama_view(model)
    assert view.dtype == view.head.dense().dtype == torch.bfloat16
    assert torch.equal(view.embedding, ours.embedding)
    assert torch.equal(view.head.dense(), ours.head.dense())
    assert weight_sample(view) == weight_sample(ours)


@pytest.mark.parametrize("turned", [[1, 0, 1], [0, 1, 1], None])
def test_layers_without_positions_are_those_of_transformers_in_every_kind_of_attention(words, path, tmp_path, turned):
    sizes = SIZES | {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 5 if turned is None else 3}
    torch.manual_seed(3)
    config = transformers.SmolLM3Config(**sizes, pad_token_id=0, no_rope_layers=turned, tie_word_embeddings=True)
    tiny = Checkpoint(tmp_path, AutoModelForCausalLM.from_config(config).eval())
    tiny.model.save_pretrained(tmp_path)
    text, tree = words(40), Draft((5, 6, 7, 8), (ROOT, 0, ROOT, 1))
    want = torch.stack([tiny.logits(text + path(tree, node))[-1] for node in range(ROOT, len(tree))])
    lm = Transformer.load(tmp_path)                # heads of 32: compiled, where there is a compiler
    assert lm.shape.unturned == ((3,) if turned is None else (turned.index(0),))
    assert lm.shape.tied
    for one in (lm, Transformer(lm.weights, static=True)):
        assert far(one(text, tree).logits, want) < CLOSE
    half = Transformer.load(tmp_path, torch.bfloat16)
    if half.batch_invariant:
        alone = [half.fresh()(text + path(tree, node), Draft()).logits[0] for node in range(ROOT, len(tree))]
        assert torch.equal(half(text, tree).logits, torch.stack(alone))


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


# --- text beside images ----------------------------------------------------------------------------------------------

WORDS = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 97,
         "num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 256, "initializer_range": 0.3,
         "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SECTIONS = {"rope_type": "default", "mrope_section": [2, 2, 2], "rope_theta": 500.0}
EYES = {"hidden_size": 32, "intermediate_size": 40, "num_heads": 2, "depth": 1, "out_hidden_size": 48}
PICTURES = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14, "model_type": "pixtral"}
MARKS = {"image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 7, "vision_end_token_id": 8}
SEEING = {                                         # family: (model, config, whether the head is the embedding)
    "qwen2_5_vl": (transformers.Qwen2_5_VLForConditionalGeneration, lambda tied: transformers.Qwen2_5_VLConfig(
        text_config={**WORDS, "rope_parameters": SECTIONS}, vision_config=EYES, **MARKS, tie_word_embeddings=tied)),
    "qwen3_vl": (transformers.Qwen3VLForConditionalGeneration, lambda tied: transformers.Qwen3VLConfig(
        text_config={**WORDS, "rope_parameters": SECTIONS}, vision_config={**EYES, "deepstack_visual_indexes": []},
        **MARKS, tie_word_embeddings=tied)),
    "mistral3": (transformers.Mistral3ForConditionalGeneration, lambda tied: transformers.Mistral3Config(
        text_config={**WORDS, "model_type": "mistral", "sliding_window": None, "rope_theta": 500.0},
        vision_config=PICTURES, image_token_index=5, tie_word_embeddings=tied))}


@pytest.fixture(scope="module", params=[(family, tied) for family in SEEING for tied in (False, True)], ids=str)
def seeing(request, tmp_path_factory):
    """(folder, model) of a random model that reads images as well."""
    family, tied = request.param
    kind, config = SEEING[family]
    torch.manual_seed(4)
    model, folder = kind(config(tied)).eval(), tmp_path_factory.mktemp("seeing")
    for name, weight in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(weight, 0.0 if name.endswith("bias") else 1.0, 0.3)
    model.save_pretrained(folder)
    return folder, model


def logits_of(model, text):
    with torch.no_grad():
        return model(input_ids=torch.tensor([text])).logits[0]


def test_the_text_model_of_one_that_reads_images_has_transformers_logits(seeing, words):
    folder, model = seeing
    lm, text = load_lm(folder, torch.float32, "cpu"), words(30)
    assert isinstance(lm, Transformer)
    assert far(lm(text[:9], deterministic_chain(text[9:])).logits, logits_of(model, text)[8:]) < CLOSE
    assert parameter_count(folder) == sum(weight.numel() for name, weight in model.named_parameters()
                                          if "vision" not in name and "visual" not in name and "projector" not in name)


def test_drafters_see_its_weights_in_transformers_too(seeing):
    folder, model = seeing
    ours, view = Transformer.load(folder).weights, llama_view(model)
    assert view.shape == ours.shape
    assert torch.equal(view.embedding, ours.embedding)
    assert all(torch.equal(one.qkv.dense(), other.qkv.dense())
               for one, other in zip(view.layers, ours.layers, strict=True))


@pytest.mark.parametrize("start", [("model.", ""), ("model.language_model.", ""), ("language_model.model.",
                                                                                  "language_model.")])
def test_every_way_to_name_its_tensors_is_read(seeing, start, tmp_path, words):
    folder, model = seeing
    tensors, renamed = load_file(folder / "model.safetensors"), {}
    for name, tensor in tensors.items():
        ours = text_name(name)
        if ours is None:
            renamed[name] = tensor
        else:
            renamed[start[1] + ours if ours == HEAD else start[0] + ours.removeprefix("model.")] = tensor
    save_file(renamed, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    text = words(12)
    assert far(Transformer.load(tmp_path)(text[:1], deterministic_chain(text[1:])).logits,
               logits_of(model, text)) < CLOSE


def test_an_earlier_config_has_the_values_of_the_text_beside_those_of_the_images(seeing, tmp_path, words):
    folder, model = seeing
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "qwen2_5_vl":       # the others have always had them inside
        return
    inside = config.pop("text_config")
    inside.pop("rope_parameters")
    scaling = {"type": "mrope", "mrope_section": [2, 2, 2]}
    flat = {**inside, **config, "rope_theta": 500.0, "rope_scaling": scaling, "model_type": "qwen2_5_vl"}
    (tmp_path / "config.json").write_text(json.dumps(flat))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    text = words(12)
    assert far(Transformer.load(tmp_path)(text[:1], deterministic_chain(text[1:])).logits,
               logits_of(model, text)) < CLOSE


@pytest.mark.parametrize("change", [{"text_config": [1]}, {"text_config": None}, {"model_type": ["qwen3_vl"]}])
def test_a_config_without_a_text_model_is_refused_in_a_sentence(change, seeing, tmp_path):
    folder, _ = seeing
    (tmp_path / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | change))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(Refusal):
        load_lm(tmp_path, torch.float32, "cpu")


def test_what_is_stored_decides_beside_images_too(seeing, tmp_path):
    folder, model = seeing
    config = json.loads((folder / "config.json").read_text())
    tied = config.pop("tie_word_embeddings", False)
    config["text_config"]["tie_word_embeddings"] = tied          # said inside alone
    tensors = load_file(folder / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert Transformer.load(tmp_path).shape.tied == tied
    head = next((name for name in tensors if text_name(name) == HEAD), f"language_model.{HEAD}")
    tensors[head] = model.get_input_embeddings().weight.detach().flip(0).contiguous()
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    lm = Transformer.load(tmp_path)
    assert not lm.shape.tied
    assert torch.equal(lm.weights.head.dense(), tensors[head])


def test_a_tensor_of_the_text_that_does_not_fit_is_refused_and_one_of_the_images_is_not_read(seeing, tmp_path):
    folder, _ = seeing
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if (text_name(name) or "").endswith("layers.1.mlp.down_proj.weight"))
    tensors[name] = tensors[name][:-8].contiguous()
    tensors["visual.blocks.0.mlp.down_proj.weight"] = torch.zeros(3, 3)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(Refusal, match=r"layers\.1\.mlp\.down_proj\.weight is 40 x 64 and by its config\.json 48 x 64"):
        Transformer.load(tmp_path)
