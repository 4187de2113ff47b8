"""Trained checkpoints on the command line: which are used, their checksums, and what does not fit."""

import json

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
    trained_for,
)


def test_a_method_is_listed_as_available_where_its_checkpoint_stands_on_the_shelf(model, tmp_path, capsys):
    def eagle(shelf):
        assert cli.run(["methods", "--json", "--checkpoints", str(shelf)]) == 0
        return next(entry for entry in json.loads(capsys.readouterr().out) if entry["name"] == "eagle")

    empty = eagle(tmp_path)
    assert empty["missing"] == ["eagle"]
    assert empty["available"] is False
    assert cli.run(["methods", "--checkpoints", str(tmp_path)]) == 0
    assert "needs eagle: specdec train eagle" in capsys.readouterr().out
    assert eagle(trained_for(model, tmp_path / "shelf"))["available"] is True


def test_a_checkpoint_on_the_shelf_drafts_and_the_run_keeps_its_checksum(bench, model, tmp_path):
    shelf = trained_for(model, tmp_path / "shelf")
    words = [*bench, "--methods", "ar,eagle", "--checkpoints", str(shelf)]
    assert cli.run(words) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["methods"]["eagle"]["identical_prompts"] == 2
    sums = summary["settings"]["checkpoints"]
    assert sums == {"eagle": json.loads((shelf / "eagle" / "card.json").read_text())["sha256"]}


def test_a_run_does_not_go_on_with_a_checkpoint_that_was_trained_again(bench, model, tmp_path, capsys):
    shelf = trained_for(model, tmp_path / "shelf")
    words = [*bench, "--methods", "ar,eagle", "--checkpoints", str(shelf)]
    assert cli.run(words) == 0
    card = shelf / "eagle" / "card.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"sha256": "0" * 64}))
    assert "checkpoints is" in refused(words, capsys)


def test_a_checkpoint_for_another_model_is_refused_before_anything_is_measured(bench, tmp_path, capsys):
    other = model_folder(tmp_path / "other", vocab=40)
    shelf = trained_for(other, tmp_path / "shelf")
    said = refused([*bench, "--methods", "ar,eagle", "--checkpoints", shelf], capsys)
    assert "another architecture" in said
    assert "`specdec train eagle --target " in said
    assert not (tmp_path / "out" / "cost.json").exists()


def test_other_weights_of_the_same_model_are_a_warning_and_run(bench, tmp_path, capsys):
    shelf = trained_for(model_folder(tmp_path / "tuned", seed=5), tmp_path / "shelf")
    assert cli.run([*bench, "--methods", "ar,eagle", "--checkpoints", str(shelf)]) == 0
    assert capsys.readouterr().err.count("was trained on other weights than") == 1


def test_methods_without_a_checkpoint_read_none(bench, tmp_path):
    broken = tmp_path / "shelf" / "eagle"
    broken.mkdir(parents=True)
    (broken / "card.json").write_text("{")
    assert cli.run([*bench, "--methods", "ar,draft-model", "--checkpoints", str(broken.parent)]) == 0


@pytest.mark.parametrize(("damage", "sentence"), [
    ("empty", "`specdec train eagle --target "), ("no folder", "no folder of checkpoints at"),
    ("cut", "bytes and its card says")])
def test_a_checkpoint_that_is_missing_or_cut_short_is_one_sentence(bench, model, tmp_path, damage, sentence, capsys):
    shelf = tmp_path / "shelf"
    if damage == "empty":
        shelf.mkdir()
    elif damage == "cut":
        weights = trained_for(model, shelf) / "eagle" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-9])
    assert sentence in refused([*bench, "--methods", "eagle", "--checkpoints", shelf], capsys)


def test_an_n_gram_on_the_shelf_comes_as_the_model_that_it_is(model, tmp_path):
    from safetensors.torch import save_file

    from specdec_lib.bench.environment import open_environment
    from specdec_lib.checkpoints.checkpoint_files import replace_checkpoint

    none, vocab = torch.zeros(0), len(WORDS)
    arrays = {"unigram": torch.ones(vocab), "bigram.sizes": torch.zeros(vocab, dtype=torch.int64),
              "trigram.sizes": none.long(), "bigram.tokens": none.long(), "trigram.tokens": none.long(),
              "bigram.mass": none, "trigram.mass": none}
    card = {"target": "tiny", "made": {}, "settings": {}, "measured": {}, "limits": [], "parameters": vocab}
    replace_checkpoint(tmp_path, "ngram", lambda path: save_file(arrays, path), card, {})
    world = open_environment(str(model), "cpu", "float32", 1, shelf=tmp_path)
    assert world.checkpoints["ngram"].vocab == vocab


def test_the_checkpoints_of_a_spec_are_those_of_its_parts_and_nothing_a_kit_brings_along():
    from specdec_lib.catalog import needed_checkpoints

    assert needed_checkpoints("ar") == needed_checkpoints("draft-model(depth=2)@confidence(threshold=0.3)") == []
    assert needed_checkpoints("eagle") == ["eagle"]
    assert needed_checkpoints("early-exit") == ["early-exit"]
