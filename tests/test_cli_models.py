"""Models on the command line: draft models, damaged folders, weights that are no numbers."""

import json
import os
import shutil

import pytest
import torch

from specdec_lib import cli
from tests.small_bench import (  # noqa: F401
    WORDS,
    bench_fixture,
    curve_fixture,
    model_fixture,
    model_folder,
    prompts_fixture,
    refused,
)


def test_a_draft_model_with_another_vocabulary_is_refused(bench, tmp_path, capsys):
    other = model_folder(tmp_path / "other", vocab=40, words=[*reversed(WORDS)])
    assert "vocabulary" in refused([*bench, "--methods", "ar", "--draft", other], capsys)


def test_a_draft_model_with_the_same_vocabulary_drafts_and_assists_transformers(bench, tmp_path):
    small = model_folder(tmp_path / "small", seed=1)
    assert cli.run([*bench, "--methods", "ar,draft-model", "--peers", "hf-assisted", "--draft", str(small)]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["peers"]["hf-assisted"]["identical_prompts"] == 2
    assert summary["settings"]["draft"] == "small"


@pytest.mark.parametrize("vocab", [20, 80])
def test_a_draft_model_that_lacks_tokens_or_drafts_others_is_refused(bench, tmp_path, vocab, capsys):
    other = model_folder(tmp_path / "other", vocab=vocab)
    said = refused([*bench, "--methods", "draft-model", "--draft", other], capsys)
    assert f"the draft model other knows {vocab} tokens and the target {len(WORDS)}" in said


def test_weights_of_a_pipe_are_never_waited_for(bench, model, tmp_path, capsys):
    shutil.copytree(model, tmp_path / "odd")
    (tmp_path / "odd" / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "odd" / "model.safetensors")
    assert "is a pipe or a device" in refused([*bench, "--target", tmp_path / "odd"], capsys)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn], ids=str)
def test_weights_that_are_no_real_numbers_of_16_bits_are_refused(bench, model, tmp_path, dtype, capsys):
    other = changed_model(model, tmp_path / "odd", weights=lambda found: found.update(
        {name: tensor.to(dtype) for name, tensor in found.items()}))
    said = refused([*bench, "--methods", "ar", "--target", other], capsys)
    assert "and weights are read from F32, BF16, F16, F64: fetch the model as it was published" in said


def test_a_config_of_another_family_over_these_weights_is_refused_and_not_filled_with_random_ones(
        bench, model, tmp_path, capsys):
    other = changed_model(model, tmp_path / "odd", config={"model_type": "gpt2"})
    said = refused([*bench, "--methods", "ar", "--target", other], capsys)
    assert "lacks tensors that its config.json asks for, such as" in said


@pytest.mark.parametrize("damage", ["cut", "gone", "pickled", "noise"])
def test_a_corrupt_model_is_refused(bench, model, tmp_path, damage, capsys):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    weights = broken / "model.safetensors"
    data = weights.read_bytes()
    weights.unlink()
    if damage == "pickled":
        torch.save({}, broken / "pytorch_model.bin")
    elif damage != "gone":
        weights.write_bytes(data[:len(data) // 2] if damage == "cut" else b"\x00" * 64)
    said = refused([*bench, "--methods", "ar", "--target", broken], capsys)
    assert "safetensors" in said


def changed_model(model, folder, config=None, weights=None):
    """A copy of a model with other values in its config, or with one tensor changed."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
    (folder / "generation_config.json").unlink(missing_ok=True)
    if weights:
        tensors = load_file(folder / "model.safetensors")
        weights(tensors)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(("config", "sentence"), [
    ({"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 3, "head_dim": None}, "cannot share"),
    ({"num_attention_heads": 3, "head_dim": None}, "cannot share"), ({"num_hidden_layers": -1}, "whole number above 0"),
    ({"num_hidden_layers": "5"}, "whole number above 0"), ({"num_hidden_layers": 3}, "3 layers"),
    ({"vocab_size": 30}, "by its config.json 30 x 16"), ({"max_position_embeddings": 0}, "context is a whole number"),
    ({"eos_token_id": 9999}, "end token 9999"), ({"eos_token_id": "x"}, "end token 'x'"),
    ({"rms_norm_eps": float("nan")}, "epsilon"), ({"rope_parameters": {"rope_theta": -1.0}}, "rotary angles"),
    ({"rope_parameters": [1], "rope_scaling": [1]}, "wrong kind"),
    ({"intermediate_size": [3]}, "whole number above 0")])
def test_a_config_that_no_model_can_have_is_refused_by_what_is_wrong(bench, model, tmp_path, config, sentence, capsys):
    folder = changed_model(model, tmp_path / "odd", config)
    assert sentence in refused([*bench, "--methods", "ar", "--target", folder], capsys)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_a_broken_config_is_named_and_not_a_missing_tokenizer(bench, model, tmp_path, text, capsys):
    folder = changed_model(model, tmp_path / "odd")
    (folder / "config.json").write_text(text)
    said = refused([*bench, "--methods", "ar", "--target", folder], capsys)
    assert "config.json" in said
    assert "tokenizer" not in said


def test_a_link_in_a_circle_and_a_file_are_no_model_and_the_hub_is_not_asked(bench, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *words, **more: pytest.fail("the hub was asked"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    assert "loop is a link that leads to no folder" in refused([*bench, "--target", "loop"], capsys)
    assert "file is a file, and a model is a folder" in refused([*bench, "--target", "file"], capsys)
    assert "file is a file, and a model is a folder" in refused([*bench, "--draft", "file"], capsys)


@pytest.mark.parametrize("command", ["generate", "bench", "record", "cost"])
def test_weights_that_are_no_numbers_are_refused_at_the_first_forward(bench, model, tmp_path, command, capsys):
    def spoil(tensors):
        tensors["model.norm.weight"].fill_(float("nan"))
    folder = changed_model(model, tmp_path / "nan", weights=spoil)
    more = {"generate": ["a b c"], "bench": bench[3:5], "record": [*bench[3:5], "--out", tmp_path / "out"],
            "cost": ["--contexts", "8", "--out", tmp_path / "out"]}[command]
    said = refused([command, "--target", folder, "--dtype", "float32", *more], capsys)
    assert "are not numbers" in said
    assert not (tmp_path / "out").exists()


def test_one_row_that_is_no_number_ends_an_answer_in_a_sentence(model, tmp_path, capsys):
    def spoil(tensors):
        tensors["model.embed_tokens.weight"][5] = float("nan")           # of "d" alone
    folder = changed_model(model, tmp_path / "row", weights=spoil)
    words = ["generate", "--target", str(folder), "--dtype", "float32", "--max-new-tokens", "2"]
    assert cli.run([*words, "a b"]) == 0
    assert "are not numbers" in refused([*words, "a d b"], capsys)


def test_a_draft_model_that_cannot_hold_the_prompts_is_refused(bench, prompts, tmp_path, capsys):
    small = model_folder(tmp_path / "small", seed=1)
    path = small / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 4}))
    said = refused([*bench, "--methods", "ar,draft-model", "--draft", small], capsys)
    assert "prompt 1 has 5 tokens" in said
    assert "draft model holds 4" in said
