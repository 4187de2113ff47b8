"""A pretrained diffusion model is handed in by name, on random models: it drafts, or one sentence says why not."""

import json
from collections import ChainMap

import pytest
import torch
from safetensors.torch import save_file

from specdec_lib import catalog, cli
from specdec_lib.analysis import bench_report, report_tables
from specdec_lib.bench.environment import open_environment
from specdec_lib.bench.options import RunOptions, prepare
from specdec_lib.heads.dream_llada import Pretrained
from tests.heads.test_dream_llada import made
from tests.small_bench import CURVE, WORDS, model_folder, words_of_bench

ADDED = {str(len(WORDS) + i): {"content": word} for i, word in enumerate(("<pad>", "<|mask|>"))}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


def dream(folder, words=WORDS):
    """A random Dream whose tokenizer is the words and a mask, and has code of its own."""
    folder.mkdir()
    made("Dream", folder).write(mask_token_id=len(WORDS) + 1, pad_token_id=len(WORDS), vocab_size=41)
    config = {"tokenizer_class": "DreamTokenizer", "added_tokens_decoder": ADDED}
    (folder / "vocab.json").write_text(json.dumps({word: token for token, word in enumerate(words)}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def words(model, tmp_path):
    """Words of a bench with a diffusion model; more words are put behind them."""
    return words_of_bench(model, tmp_path, "diffusion-draft", "--diffusion", dream(tmp_path / "dream"))


def refused(words, capsys) -> str:
    assert cli.run(words) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("specdec: ")]
    assert len(lines) == 1
    return lines[0]


def test_it_drafts_where_no_checkpoint_was_trained_and_the_output_is_that_of_plain_decoding(words, tmp_path, capsys):
    assert cli.run(words) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["methods"]["diffusion-draft"]["identical_prompts"] == 1
    assert summary["settings"]["diffusion"] == "dream"
    assert summary["settings"]["checkpoints"] is None
    assert str(tmp_path) not in json.dumps(summary["settings"])
    assert "dream drafts for methods with a diffusion model; its context is 2048 tokens" in capsys.readouterr().err
    kept = bench_report.load_report(tmp_path / "out")
    shown = {row["what"]: row["value"] for row in report_tables.provenance_table(kept)}
    assert shown["diffusion model"] == "dream"


def test_an_answer_can_be_drafted_by_it(words, model, tmp_path, capsys):
    assert cli.run(["generate", "a b c", "--method", "diffusion-draft(depth=3)", *words[3:5], *words[7:17],
                    *words[-2:]]) == 0
    assert "diffusion-draft(depth=3), tiny" in capsys.readouterr().out


def test_a_run_without_it_is_described_as_before(words):
    here = prepare(RunOptions())
    assert "diffusion" not in here.plan.as_dict()


def test_other_checkpoints_still_come_from_the_shelf_and_decodes_share_its_weights(model, tmp_path):
    world = open_environment(str(model), "cpu", "float32", 1, shelf=tmp_path, drafts=False,
                             diffusion=str(dream(tmp_path / "dream")))
    assert isinstance(world.checkpoints, ChainMap)
    assert "eagle" not in world.checkpoints
    loaded = world.checkpoints["diffusion-lm"]
    assert isinstance(loaded, Pretrained)
    assert loaded.mask == len(WORDS) + 1
    assert loaded.weights.ids.tolist() == list(range(len(WORDS)))
    heads = [world.kit(prepare(RunOptions()).plan, CURVE).part("diffusion-lm").head for _ in range(2)]
    assert heads[0].model.weights is heads[1].model.weights is loaded.weights
    assert heads[0].window == 2048


def test_another_tokenizer_is_refused_in_one_sentence(words, tmp_path, capsys):
    other = dream(tmp_path / "other", [*reversed(WORDS)])
    assert "other has another tokenizer than the target" in refused([*words[:-1], str(other)], capsys)


def test_what_is_no_diffusion_model_is_refused(words, model, capsys):
    said = refused([*words[:-1], str(model)], capsys)
    assert "type 'llama' is no diffusion language model that is known here: there are Dream and LLaDA" in said


def test_a_folder_that_is_not_there_is_refused(words, capsys):
    said = refused([*words[:-1], "./nowhere"], capsys)
    assert "no folder './nowhere': give --diffusion a folder or a hub name of a Dream or LLaDA model" in said


def test_a_tensor_that_is_missing_is_named(words, tmp_path, capsys):
    file = tmp_path / "dream" / "model.safetensors"
    save_file({"model.embed_tokens.weight": torch.zeros(41, 24)}, file)
    assert "dream lacks the tensor model.layers.0." in refused(words, capsys)


def test_without_a_method_that_drafts_with_it_nothing_is_loaded(words, capsys):
    words[2] = "sam"
    assert "no method here drafts with a diffusion model: name one, such as diffusion-draft" in refused(words, capsys)


def on_shelf(folder, *names):
    """Cards of checkpoints that nobody trained."""
    for name in names:
        (folder / name).mkdir(parents=True)
        card = {"bytes": 1, "sha256": f"sum of {name}", "target": {"name": "tiny", "fingerprint": {}}}
        (folder / name / "card.json").write_text(json.dumps(card))
    return folder


def test_a_checkpoint_that_a_method_takes_by_itself_is_written_down_with_its_sum(tmp_path):
    def sums(spec, shelf, **more):
        return set(prepare(RunOptions(spec, checkpoints=shelf, **more)).plan.checkpoints or ())

    both = on_shelf(tmp_path / "both", "diffusion-lm", "diffusion-lm-aligned")
    one = on_shelf(tmp_path / "one", "diffusion-lm")
    assert sums("specdiff2", both) == {"diffusion-lm", "diffusion-lm-aligned"}
    assert sums("specdiff2", one) == sums("specdiff2(weights='diffusion-lm')", both) == {"diffusion-lm"}
    assert sums("diffusion-draft", both) == {"diffusion-lm"}
    assert sums("specdiff2", both, diffusion="dream") == set()


def test_a_run_that_loses_the_methods_with_a_diffusion_model_loses_the_model_and_keeps_what_parameters_name(tmp_path):
    shelf = on_shelf(tmp_path / "shelf", "early-exit", "diffusion-lm", "diffusion-lm-aligned")
    both = prepare(RunOptions("diffusion-draft,early-exit", checkpoints=shelf, diffusion="dream"))
    assert both.without(["early-exit"]).plan.diffusion == "dream"
    left = both.without(["diffusion-draft"])
    assert left.plan.diffusion is None, "a model that no method drafts with is large, and loading it is wasted"
    assert (list(map(str, left.plan.methods)), list(left.plan.checkpoints or {})) == (["ar", "early-exit"],
                                                                                      ["early-exit"])
    named = prepare(RunOptions("early-exit,diffusion-draft(weights='diffusion-lm-aligned')", checkpoints=shelf))
    assert set(named.without(["early-exit"]).plan.checkpoints or {}) == {"diffusion-lm", "diffusion-lm-aligned"}


def test_a_pretrained_model_drafts_before_an_aligned_one_that_lies_on_the_shelf(model, tmp_path):
    world = open_environment(str(model), "cpu", "float32", 1,
                             shelf=on_shelf(tmp_path / "shelf", "diffusion-lm-aligned"),
                             drafts=False, diffusion=str(dream(tmp_path / "dream")))
    method = catalog.build("specdiff2", world.kit(prepare(RunOptions()).plan, CURVE))
    assert method.what.drafter.head.model.weights is world.checkpoints["diffusion-lm"].weights
