"""A published drafter is handed in by name, on random models: it drafts, or one sentence says why not."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from specdec_lib import cli
from specdec_lib.analysis import bench_report, report_tables
from specdec_lib.bench.options import RunOptions, prepare, why_left_out
from specdec_lib.bench.published_source import CONVERT
from specdec_lib.models.replay import load_recording
from tests.heads import published, published_block
from tests.heads.published import SPEC3, Published, written
from tests.small_bench import WORDS, model_folder, refused, words_of_bench

LAYER = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 36, "num_hidden_layers": 1,
         "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "vocab_size": len(WORDS)}
HEAD = Published({**SPEC3, "norm_before_residual": True, "transformer_layer_config": LAYER,
                  "eagle_aux_hidden_state_layer_ids": [1, 2, 4], "draft_vocab_size": 5}, "layers.0.", (1, 2, 4),
                 ids=(2, 3, 4, 5, 29))


def block_drafter(folder):
    """A block drafter for the tiny model, in this folder."""
    return published_block.written(folder, published_block.with_own({
        **published_block.CONFIG, "hidden_size": 16, "vocab_size": len(WORDS), "max_position_embeddings": 64},
        mask_token_id=0, target_layer_ids=[0, 2]))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def head(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "HIDDEN", 16)
    return written(tmp_path / "public", HEAD)


@pytest.fixture
def words(model, head, tmp_path):
    """Words of a bench with a published head; more words are put behind them."""
    return words_of_bench(model, tmp_path, "eagle,eagle2", "--eagle", head)


def test_it_drafts_where_no_head_was_trained_and_the_output_is_that_of_plain_decoding(words, tmp_path, capsys):
    assert cli.run(words) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [summary["methods"][name]["identical_prompts"] for name in ("eagle", "eagle2")] == [1, 1]
    assert summary["settings"]["eagle"] == "public"
    assert summary["settings"]["checkpoints"] is None
    assert str(tmp_path) not in json.dumps(summary["settings"])
    said = capsys.readouterr().err
    assert "public drafts for methods with an EAGLE head: EAGLE-3's layout, hidden states after 1, 2, 4 layers" in said
    kept = bench_report.load_report(tmp_path / "out")
    assert {row["what"]: row["value"] for row in report_tables.provenance_table(kept)}["EAGLE head"] == "public"
    assert min(kept.column("draft_round_share", ("eagle", "eagle2"))) > 0


def test_answers_and_recordings_are_drafted_by_it(words, tmp_path, capsys):
    assert cli.run(["generate", "a b c", "--method", "eagle(depth=3)", *words[3:5], *words[9:17], *words[-4:]]) == 0
    assert "eagle(depth=3), tiny" in capsys.readouterr().out
    assert cli.run(["record", "--drafters", "eagle", *words[3:7], *words[9:17], *words[-4:], "--out",
                    str(tmp_path / "recorded")]) == 0
    (file,) = (tmp_path / "recorded").iterdir()
    assert list(load_recording(file).drafts) == ["eagle"]


def test_a_published_block_drafter_does_the_same(model, tmp_path, capsys):
    drafter = block_drafter(tmp_path / "public")
    words = words_of_bench(model, tmp_path, "block-diffusion,ddtree(price=0)", "--dflash", drafter)
    assert cli.run(words) == 0
    kept = bench_report.load_report(tmp_path / "out")
    assert kept.column("identical_prompts", ("block-diffusion", "ddtree(price=0)")) == [1, 1]
    assert min(kept.column("draft_round_share", ("block-diffusion", "ddtree(price=0)"))) > 0
    assert kept.summary["settings"]["dflash"] == "public"
    assert kept.summary["settings"]["checkpoints"] is None
    assert {row["what"]: row["value"] for row in report_tables.provenance_table(kept)}["DFlash drafter"] == "public"
    said = capsys.readouterr().err
    assert ("public drafts for methods with a block drafter: 2 layers, hidden states after 1, 3 layers, blocks of 5"
            " tokens") in said
    words[2] = "sam"
    assert "no method here drafts with a block drafter: name one, such as ddtree, or leave" in refused(words, capsys)


def test_each_kind_replaces_its_own_drafter_alone(head):
    both = prepare(RunOptions("eagle,ddtree", eagle=str(head), dflash="./somewhere"))
    assert both.plan.checkpoints is None
    assert list(prepare(RunOptions("eagle,ddtree", dflash="./somewhere")).plan.checkpoints or {}) == ["eagle"]
    assert both.without(["ddtree"]).plan.dflash is None
    assert both.without(["ddtree"]).plan.eagle == str(head)


def test_of_the_default_methods_those_that_it_drafts_for_stay(head, tmp_path):
    (tmp_path / "shelf").mkdir()
    empty = RunOptions(None, checkpoints=tmp_path / "shelf")
    assert "eagle2" in why_left_out(empty)
    assert not {"eagle2", "respec"} & set(why_left_out(replace(empty, eagle=str(head))))


def test_a_run_without_it_is_described_as_before_and_its_own_head_is_not_asked_for(words, head):
    assert "eagle" not in prepare(RunOptions()).plan.as_dict()
    assert "eagle" in (prepare(RunOptions("eagle")).plan.checkpoints or {})
    assert prepare(RunOptions("eagle", eagle=str(head))).plan.checkpoints is None
    both = prepare(RunOptions("eagle,early-exit", eagle=str(head)))
    assert list(both.plan.checkpoints or {}) == ["early-exit"]
    assert list(both.without(["eagle"]).plan.checkpoints or {}) == ["early-exit"]


def test_without_a_method_that_drafts_with_it_nothing_is_loaded(words, capsys):
    words[2] = "sam"
    assert "no method here drafts with an EAGLE head: name one, such as eagle2, or leave" in refused(words, capsys)


def test_for_the_encoder_decoder_it_is_refused(words, capsys):
    words[4] = "g2p"
    assert "--eagle names a model of text" in refused(words, capsys)
    words[2], words[-2] = "ddtree", "--dflash"
    assert "--dflash names a model of text" in refused(words, capsys)


def test_what_is_no_head_for_the_target_is_refused(words, model, tmp_path, capsys, monkeypatch):
    assert "tiny is no EAGLE head that is known here" in refused([*words[:-1], str(model)], capsys)
    said = refused([*words[:-1], "./nowhere"], capsys)
    assert "no folder './nowhere': give --eagle a folder or a hub name of an EAGLE head" in said
    monkeypatch.setattr(published, "HIDDEN", 24)
    other = replace(HEAD, config={**HEAD.config, "transformer_layer_config": {**LAYER, "hidden_size": 24}})
    said = refused([*words[:-1], str(written(tmp_path / "wide", other))], capsys)
    assert "wide has a hidden size of 24 for a target of 24, and this target has 16" in said


def test_pickled_weights_are_refused_with_the_command_that_converts_them(words, head, capsys):
    import torch

    state = load_file(head / "model.safetensors")
    torch.save(state, head / "pytorch_model.bin")
    (head / "model.safetensors").unlink()
    said = refused(words, capsys)
    assert "has pickled weights, which can run code when read: only safetensors are read, and a pytorch_model" in said
    command = CONVERT.split("`")[1]
    assert command in said
    subprocess.run(command.replace("python ", f"{sys.executable} ", 1), shell=True, check=True, cwd=head,
                   timeout=120)
    assert load_file(head / "model.safetensors").keys() == state.keys()
    assert cli.run([*words, "--limit", "1"]) == 0
