"""`specdec export eagle`: a trained head in the speculators format, read again by `--eagle`."""

import json
import shutil

import pytest

from specdec_lib import cli
from tests.small_bench import model_folder, refused, trained_for


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


def words(model, shelf, out) -> list[str]:
    return ["export", "eagle", "--format", "speculators", "--target", str(model), "--checkpoints", str(shelf), "--out",
            str(out)]


def test_the_exported_head_drafts_as_the_checkpoint_does(model, tmp_path, capsys):
    shelf = trained_for(model, tmp_path / "shelf", (1, 2, 4))
    assert cli.run(words(model, shelf, tmp_path / "head")) == 0
    files = {line.rpartition("/")[2] for line in capsys.readouterr().out.split()}
    assert files == {"model.safetensors", "config.json", "README.md"} == {
        file.name for file in (tmp_path / "head").iterdir()}
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    assert config["speculators_config"]["verifier"] == {"name_or_path": "tiny", "architectures": ["LlamaForCausalLM"]}
    assert str(tmp_path) not in (tmp_path / "head" / "README.md").read_text() + json.dumps(config)

    def rounds(*more):
        assert cli.run(["generate", "a b c a b", "--method", "eagle(depth=3)", "--target", str(model), "--device",
                        "cpu", "--dtype", "float32", "--max-new-tokens", "20", "--checkpoints", str(shelf), *more]) == 0
        return capsys.readouterr().out.partition(";")[0]

    assert rounds("--eagle", str(tmp_path / "head")) == rounds()


@pytest.mark.parametrize(("place", "word", "sentence"), [
    (1, "draft-lm", "only the checkpoint eagle has a published format, and draft-lm is another"),
    (3, "eagle3", "divides each tapped hidden state by its own size before fc"),
    (3, "csv", "no format named 'csv'; there are: spec-bench, speculators, eagle3"),
    (5, "./nowhere", "there is no folder './nowhere'"), (7, "nowhere", "no folder of checkpoints at nowhere"),
    (9, __file__, "is a file: give --out a folder for the head")])
def test_what_cannot_be_written_is_refused_in_a_sentence(place, word, sentence, model, tmp_path, capsys):
    given = words(model, tmp_path, tmp_path / "head")
    given[place] = word
    assert sentence in refused(given, capsys)
    assert not (tmp_path / "head").exists()


@pytest.mark.parametrize("name", ["target", "eagle", "README.md", "model.safetensors"])
def test_the_files_of_another_model_are_never_written_over_and_an_older_head_is(name, model, tmp_path, capsys):
    shelf, out = trained_for(model, tmp_path / "shelf", (1, 2, 4)), tmp_path / "place"
    shutil.copytree({"target": model, "eagle": shelf / "eagle"}.get(name, shelf), out)
    if name in ("README.md", "model.safetensors"):
        (out / name).write_text("mine")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert "of another model: give --out a folder of its own" in refused(words(model, shelf, out), capsys)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    for _ in range(2):
        assert cli.run(words(model, shelf, tmp_path / "head")) == 0


def test_a_head_for_the_normed_state_and_a_shelf_without_one_are_refused(model, tmp_path, capsys):
    assert "there is no checkpoint eagle in" in refused(words(model, tmp_path, tmp_path / "head"), capsys)
    said = refused(words(model, trained_for(model, tmp_path / "shelf"), tmp_path / "head"), capsys)
    assert "reads the last hidden state after the target's norm" in said
    given = [*words(model, tmp_path / "shelf", tmp_path / "head"), "--method", "sam"]
    assert "are for the answers of a run" in refused(given, capsys)
