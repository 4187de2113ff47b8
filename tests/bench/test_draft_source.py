"""Who drafts, on a random model: checkpoints by name, the default that falls back, and what a summary says of it."""

import json

import pytest
import torch

from specdec_lib import cli
from specdec_lib.analysis import bench_report, report_tables
from specdec_lib.bench import draft_source
from specdec_lib.bench.options import RunOptions, prepare
from specdec_lib.checkpoints.checkpoint_files import CheckpointFolder, read_card, replace_checkpoint, save_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.hub.load import load
from specdec_lib.types import Draft, Refusal
from tests.small_bench import CURVE, WORDS, model_folder

IDS = tuple(range(1, 20))
LIMITS = {"made": {"command": "none"}, "settings": {}, "measured": {}, "limits": ["Untrained."]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def words(model, tmp_path):
    """Words of a bench that drafts with a model; more words are put behind them."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"question_id": 1, "category": "qa", "turns": ["a b c a b"]}) + "\n")
    CURVE.save(tmp_path / "curve.json")
    return ["bench", "--methods", "draft-model", "--target", str(model), "--prompts", str(prompts), "--cost",
            str(tmp_path / "curve.json"), "--dtype", "float32", "--threads", "1", "--max-new-tokens", "8", "--device",
            "cpu", "--out", str(tmp_path / "out"), "--checkpoints", str(tmp_path / "shelf")]


def put_draft_lm(shelf, folder, layers=(0, 2)):
    """A draft-lm on the shelf: some layers of the model in a folder, which is what training starts from."""
    target, text = load(str(folder), torch.float32, "cpu")
    state = {f"layers.{i}.{kind}": getattr(target.weights.layers[at], kind).dense()
             for i, at in enumerate(layers) for kind in ("qkv", "out", "gate_up", "down")}
    state |= {"norm": target.weights.norm, "ids": torch.tensor(IDS)}
    return save_checkpoint(shelf, "draft-lm", state, {"layers": list(layers)}, {"target": "tiny", **LIMITS},
                           {"layers.*": "float32", "norm": "float32"}, target.weights, fingerprint(target, text))


def put_ngram(shelf, folder, vocab=len(WORDS)):
    """A unigram under the name ngram, for the tokenizer of the model in a folder."""
    from safetensors.torch import save_file

    none, (target, text) = torch.zeros(0), load(str(folder), torch.float32, "cpu")
    arrays = {"unigram": torch.ones(vocab), "bigram.sizes": torch.zeros(vocab, dtype=torch.int64),
              "trigram.sizes": none.long(), "bigram.tokens": none.long(), "trigram.tokens": none.long(),
              "bigram.mass": none, "trigram.mass": none}
    card = {"target": "tiny", **LIMITS, "parameters": vocab}
    replace_checkpoint(shelf, "ngram", lambda path: save_file(arrays, path), card,
                       {"tokenizer": fingerprint(target, text)["tokenizer"]})


def settings(tmp_path):
    return json.loads((tmp_path / "out" / "summary.json").read_text())["settings"]


def refused(words, capsys) -> str:
    assert cli.run(words) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("specdec: ")]
    assert len(lines) == 1
    return lines[0]


def shelf_of(folder, target, name="tiny"):
    return CheckpointFolder(folder, target, name=name)


def test_a_draft_lm_is_its_layers_between_the_targets_embedding_and_rows(model, tmp_path):
    put_draft_lm(tmp_path, model, layers=(0, 1))
    target, _ = load(str(model), torch.float32, "cpu")
    found = draft_source.choose_draft("draft-lm", target, shelf_of(tmp_path, target), print)
    want = target.first_layers(2)((3, 4, 5), Draft()).logits[:, list(IDS)]
    assert float((found.lm((3, 4, 5), Draft()).logits - want).abs().max()) < 1e-4
    assert found.name == found.checkpoint == "draft-lm"


def test_a_draft_lm_that_fits_drafts_without_being_named_and_the_summary_says_so(words, model, tmp_path, capsys):
    put_draft_lm(tmp_path / "shelf", model)
    assert cli.run(words) == 0
    found = settings(tmp_path)
    assert found["draft"] == "draft-lm"
    assert "draft-lm is the draft model" in capsys.readouterr().err
    assert found["checkpoints"] == {"draft-lm": read_card(tmp_path / "shelf", "draft-lm")["sha256"]}
    kept = bench_report.load_report(tmp_path / "out")
    shown = {row["what"]: row["value"] for row in report_tables.provenance_table(kept)}
    assert shown["draft model"] == "draft-lm"
    assert shown["checkpoints"].startswith("draft-lm (SHA-256 ")
    assert not [value for value in shown.values() if "True" in str(value) or "_gib" in str(value)], "no Python in it"


def test_the_untrained_layers_can_be_asked_for_beside_a_trained_model(words, model, tmp_path):
    put_draft_lm(tmp_path / "shelf", model)
    assert cli.run([*words, "--draft", "first-layers"]) == 0
    assert settings(tmp_path)["draft"] == "first-layers (1 of 5, untrained)"
    assert settings(tmp_path)["checkpoints"] is None


@pytest.mark.parametrize("there", ["nothing", "foreign", "damaged"])
def test_without_a_draft_lm_that_fits_the_first_layers_draft_and_one_line_says_so(words, model, tmp_path, there,
                                                                                  capsys):
    (tmp_path / "shelf").mkdir()
    if there == "foreign":
        put_draft_lm(tmp_path / "shelf", model_folder(tmp_path / "other", vocab=40))
    elif there == "damaged":
        put_draft_lm(tmp_path / "shelf", model)
        weights = tmp_path / "shelf" / "draft-lm" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-9])
    assert cli.run(words) == 0
    assert settings(tmp_path)["draft"] == "first-layers (1 of 5, untrained)"
    assert settings(tmp_path)["checkpoints"] is None
    lines = capsys.readouterr().err.splitlines()
    assert sum("until then first-layers (1 of 5, untrained) will draft" in line and "specdec train draft-lm" in line
               for line in lines) == 1


def test_an_n_gram_drafts_when_it_is_named(words, model, tmp_path):
    put_ngram(tmp_path / "shelf", model)
    assert cli.run([*words, "--draft", "ngram"]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["settings"]["draft"] == "ngram"
    assert list(summary["settings"]["checkpoints"]) == ["ngram"]
    assert summary["methods"]["draft-model"]["identical_prompts"] == 1


@pytest.mark.parametrize(("draft", "sentence"), [
    ("draft-lm", "`specdec train draft-lm` makes it"), ("ngram", "`specdec train ngram --target "),
    ("eagle", "eagle is not a language model, only its own methods use it"),
    ("canvas-sudoku", "canvas-sudoku is not a language model, only its own methods use it"),
    ("./nowhere", "no folder './nowhere': give --draft a folder, a hub name, draft-lm, ngram or first-layers")])
def test_a_draft_model_that_is_not_there_is_one_sentence(words, tmp_path, draft, sentence, capsys):
    (tmp_path / "shelf").mkdir()
    assert sentence in refused([*words, "--draft", draft], capsys)


def test_a_checkpoint_of_another_target_is_refused_when_it_is_named(words, tmp_path, capsys):
    other = model_folder(tmp_path / "other", vocab=40, words=[*reversed(WORDS)])
    put_draft_lm(tmp_path / "shelf", other)
    put_ngram(tmp_path / "shelf", other)
    assert "another architecture" in refused([*words, "--draft", "draft-lm"], capsys)
    assert "another tokenizer" in refused([*words, "--draft", "ngram"], capsys)


def test_an_n_gram_over_other_ids_than_the_targets_is_refused(words, model, tmp_path, capsys):
    put_ngram(tmp_path / "shelf", model, vocab=len(WORDS) + 3)
    said = refused([*words, "--draft", "ngram"], capsys)
    assert f"knows {len(WORDS) + 3} tokens and" in said
    assert "`specdec train ngram --target" in said


@pytest.mark.parametrize("draft", ["draft-lm", "first-layers"])
def test_transformers_assistant_needs_a_folder(words, model, tmp_path, draft, capsys):
    put_draft_lm(tmp_path / "shelf", model)
    said = refused([*words, "--peers", "hf-assisted", "--draft", draft], capsys)
    assert f"that transformers can load, not {draft}" in said


def test_a_run_in_which_nothing_wants_a_model_reads_none_and_says_nothing_of_it(words, model, tmp_path, capsys):
    put_draft_lm(tmp_path / "shelf", model_folder(tmp_path / "other", vocab=40))
    assert draft_source.candidate(None, False, tmp_path / "shelf") is None
    assert cli.run([*words, "--methods", "ar"]) == 0
    found = settings(tmp_path)
    assert found["draft"] is None
    assert found["checkpoints"] is None
    assert "draft" not in capsys.readouterr().err
    kept = bench_report.load_report(tmp_path / "out")
    shown = {row["what"]: row["value"] for row in report_tables.provenance_table(kept)}
    assert shown["draft model"] == "none: no method needs one"
    assert shown["checkpoints"] == "none"


def test_a_run_does_not_go_on_with_a_draft_lm_that_was_trained_again(words, model, tmp_path, capsys):
    put_draft_lm(tmp_path / "shelf", model)
    assert cli.run(words) == 0
    put_draft_lm(tmp_path / "shelf", model, layers=(1, 2))
    assert "checkpoints is" in refused(words, capsys)


def test_what_is_recorded_is_looked_for_before_anything_is_loaded(model, tmp_path):
    (tmp_path / "shelf").mkdir()
    there = {"methods": "ar", "target": str(model), "checkpoints": tmp_path / "shelf"}
    assert "draft" in prepare(RunOptions(**there, parts=("draft-model",))).needs
    assert "draft" not in prepare(RunOptions(**there)).needs
    with pytest.raises(Refusal, match="`specdec train eagle --target .*tiny` makes it"):
        prepare(RunOptions(**there, parts=("eagle",)))


def test_a_target_that_cannot_be_cut_has_no_untrained_drafter():
    assert draft_source.untrained_draft(object()) == draft_source.DraftSource()
