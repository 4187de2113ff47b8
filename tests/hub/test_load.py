"""A folder becomes the right kind of model, or one sentence says why not; nothing is read through pickle."""

import json

import pytest
import torch
import transformers
from safetensors.torch import save_file

from specdec_lib.bench.environment import dtype_beside, dtype_of
from specdec_lib.hub import load as loading
from specdec_lib.hub.load import default_dtype, dtype_for, load_lm, parameter_count, torchs_dtype
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.packed_linear import PackedLinear, bfloat16_is_fast, packs_dtype
from specdec_lib.models.llama.weights import safetensors_files
from specdec_lib.types import Draft, Refusal
from tests.conftest import SIZES


@pytest.fixture
def folder(tmp_path, checkpoint):
    """A copy of a tiny checkpoint that a test may break."""
    for file in checkpoint("llama").folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_the_llama_family_gets_our_decoder_and_others_get_transformers(folder, tmp_path_factory):
    assert isinstance(load_lm(folder, torch.float32, "cpu"), Transformer)
    other = tmp_path_factory.mktemp("gpt2")
    transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=97, bos_token_id=0,
                                                         eos_token_id=0)).save_pretrained(other)
    assert isinstance(load_lm(other, torch.float32, "cpu"), HuggingFace)


def test_a_window_that_slides_runs_in_transformers_with_trees(tmp_path, words):
    config = transformers.MistralConfig(**SIZES, sliding_window=8, head_dim=16)
    transformers.MistralForCausalLM(config).save_pretrained(tmp_path)
    lm = load_lm(tmp_path, torch.float32, "cpu")
    assert isinstance(lm, HuggingFace)
    assert lm.takes_trees
    assert torch.isfinite(lm(words(30), Draft()).logits).all()


def test_weights_in_several_files_are_one_model(folder, tmp_path, checkpoint, words):
    parts = tmp_path / "parts"
    checkpoint("llama").model.save_pretrained(parts, max_shard_size="20KB")
    assert len(list(parts.glob("*.safetensors"))) > 2
    whole, split = (load_lm(path, torch.float32, "cpu")(words(9), Draft()).logits for path in (folder, parts))
    assert torch.equal(whole, split)


def test_a_file_cut_short_is_refused_in_one_sentence(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(Refusal, match="model.safetensors is corrupt"):
        load_lm(folder, torch.float32, "cpu")


def test_a_tensor_that_is_missing_is_named(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))
    with pytest.raises(Refusal, match=r"lacks the tensor model.layers.3"):
        load_lm(folder, torch.float32, "cpu")


def test_quantised_weights_are_never_taken_without_their_scales(folder, checkpoint):
    tensors, name = checkpoint("llama").model.state_dict(), "model.layers.0.self_attn.q_proj.weight"
    tensors |= {name: tensors[name].to(torch.float8_e4m3fn), name + "_scale": torch.tensor(0.5)}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(Refusal, match="stored as F8_E4M3"):
        load_lm(folder)
    with pytest.raises(Refusal, match="leaves out"):
        HuggingFace.load(folder)


def test_pickled_weights_are_never_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(Refusal, match="no .safetensors file"):
        load_lm(folder, torch.float32, "cpu")


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_a_config_that_cannot_be_read_is_refused(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(Refusal, match="config.json"):
        load_lm(folder, torch.float32, "cpu")


def test_a_folder_without_a_config_is_refused(tmp_path, folder):
    (folder / "config.json").unlink()
    with pytest.raises(Refusal, match="no config.json"):
        load_lm(folder, torch.float32, "cpu")


def test_a_model_larger_than_the_free_memory_is_refused_before_it_is_read(folder, monkeypatch):
    monkeypatch.setattr(loading, "free_memory", lambda device: 1000)
    with pytest.raises(Refusal, match="GiB are free"):
        load_lm(folder, torch.float32, "cpu")


def test_an_output_matrix_that_is_the_embedding_counts_twice_on_a_cpu(folder, monkeypatch):
    config = json.loads((folder / "config.json").read_text())
    rows, count = config["vocab_size"] * config["hidden_size"], parameter_count(folder)
    for tied, kept in ((True, count + rows), (False, count)):
        (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": tied}))
        need = int(4 * loading.SPARE * kept)
        monkeypatch.setattr(loading, "free_memory", lambda device, free=need + 1: free)
        loading.refuse_too_large(folder, torch.float32, "cpu")
        monkeypatch.setattr(loading, "free_memory", lambda device, free=need - 1: free)
        with pytest.raises(Refusal, match="GiB are free"):
            loading.refuse_too_large(folder, torch.float32, "cpu")


def test_parameters_are_counted_from_the_headers(folder, checkpoint):
    assert parameter_count(folder) == sum(weight.numel() for weight in checkpoint("llama").model.parameters())


@pytest.mark.parametrize("indexed", [True, False], ids=["index", "no index"])
def test_weights_that_lie_there_twice_are_counted_and_read_once(tmp_path, checkpoint, indexed):
    parts, model = tmp_path / "parts", checkpoint("llama").model
    model.save_pretrained(parts, max_shard_size="20KB")
    save_file({"layers.0.attention.wq.weight": torch.ones(3, 3)}, parts / "consolidated.safetensors")
    if not indexed:
        (parts / "model.safetensors.index.json").unlink()
    assert parameter_count(parts) == sum(weight.numel() for weight in model.parameters())
    assert {file.name for file in safetensors_files(parts).values()} == {
        file.name for file in parts.glob("model*.safetensors")}


def test_an_index_says_which_files_are_the_models(folder, tmp_path):
    (folder / "model.safetensors").rename(tmp_path / "weights.safetensors")
    save_file({"other": torch.ones(3)}, tmp_path / "model_ema.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"lm_head.weight": "weights.safetensors"}}')
    assert {file.name for file in safetensors_files(folder).values()} == {"weights.safetensors"}


@pytest.mark.parametrize("torchs", [True, False], ids=["torch has kernels", "torch has none"])
@pytest.mark.parametrize("ours", [True, False], ids=["ours compile", "ours do not"])
def test_auto_decodes_in_bfloat16_where_ours_or_torchs_kernels_are_fast(torchs, ours, monkeypatch):
    monkeypatch.setattr(loading, "bfloat16_is_fast", lambda: torchs)
    monkeypatch.setattr(loading, "dense_code", lambda dtype: object() if ours else None)
    assert default_dtype("cpu") == (torch.bfloat16 if torchs or ours else torch.float32)
    assert torchs_dtype("cpu") == (torch.bfloat16 if torchs else torch.float32)


def test_a_dtype_by_another_name_is_refused_and_not_taken_for_four_bits(folder):
    with pytest.raises(Refusal, match="no weights are loaded in 'bfloat16': give a dtype of torch"):
        load_lm(folder, "bfloat16", "cpu")


def test_auto_is_for_a_model_what_it_is_for_the_plan(folder):
    assert load_lm(folder, "auto", "cpu").dtype == default_dtype("cpu")


def test_auto_is_what_torch_is_fast_in_where_transformers_runs_the_model(folder, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("gpt2")
    transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=97, bos_token_id=0,
                                                         eos_token_id=0)).save_pretrained(other)
    monkeypatch.setattr(loading, "dense_code", lambda dtype: object())
    for fast, dtype in ((False, torch.float32), (True, torch.bfloat16)):
        monkeypatch.setattr(loading, "bfloat16_is_fast", lambda fast=fast: fast)
        assert dtype_for(other, "cpu") == dtype
        assert load_lm(other, "auto", "cpu").dtype == dtype
        assert dtype_of("auto", "cpu", target=str(other)) == str(dtype).removeprefix("torch.")
        assert dtype_beside(other, torch.bfloat16, "cpu") == dtype
        assert dtype_beside(other, torch.float64, "cpu") == torch.float64
        assert [dtype_for(one, "cpu") for one in (folder, None, folder / "none")] == [torch.bfloat16] * 3
        assert dtype_of("auto", "cpu", target=str(folder)) == "bfloat16"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_linear_layer_multiplies_packed_or_not(dtype):
    dice = torch.Generator().manual_seed(0)
    weight, bias, x = (torch.randn(*size, generator=dice).to(dtype) for size in ((24, 16), (24,), (3, 16)))
    layer = PackedLinear(weight, bias)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 0.1)
    assert torch.allclose(layer(x).double(), x.double() @ weight.double().T + bias.double(), atol=tolerance)
    assert torch.equal(layer.dense(), weight)
    assert torch.allclose(layer.rows(torch.tensor([5, 2]))(x), layer(x)[:, [5, 2]], atol=tolerance)


def test_without_kernels_of_onednn_the_weights_stay_plain(monkeypatch):
    from specdec_lib.models.llama import packed_linear
    monkeypatch.setattr(packed_linear, "bfloat16_is_fast", lambda: False)
    packs_dtype.cache_clear()
    try:
        assert not PackedLinear(torch.eye(16, dtype=torch.bfloat16)).packed
    finally:
        monkeypatch.undo()
        packs_dtype.cache_clear()
    assert PackedLinear(torch.eye(16, dtype=torch.bfloat16)).packed == bfloat16_is_fast()


@pytest.mark.parametrize(("said", "sentence"), [
    (AssertionError("Torch not compiled with CUDA enabled"), "no CUDA device for this build of torch"),
    (RuntimeError("The NVIDIA driver on your system is too old (found version 11040)."), "driver of the GPU is older"),
    (RuntimeError("No CUDA GPUs are available"), "this machine has no CUDA device: take --device cpu")])
def test_a_device_that_is_not_there_is_refused_with_what_torch_says_of_it(said, sentence, folder, monkeypatch):
    def init():
        raise said
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    with pytest.raises(Refusal, match=sentence):
        loading.load_lm(folder, torch.float32, "cuda")


def test_a_device_number_that_is_not_there_is_refused_with_those_there_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    loading.refuse_missing("cuda:1")
    for name in ("cuda:2", "cuda:x"):
        with pytest.raises(Refusal, match="take cuda:0 to cuda:1"):
            loading.refuse_missing(name)
