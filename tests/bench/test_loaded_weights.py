"""A run's settings hold the checksums of all that it loaded: it goes on with the same weights, or not at all."""

import json
import shutil

import pytest
import torch

from specdec_lib import cli
from specdec_lib.bench.run_folder import LOADED, RunFolder
from specdec_lib.bench.usable import CHAINS_ONLY
from specdec_lib.index.store_build import build_store
from specdec_lib.models.llama.decoder import Transformer
from tests.bench.test_published_source import HEAD
from tests.bench.test_run_folder import ONE, PLAN
from tests.heads import published
from tests.heads.published import written
from tests.small_bench import interrupted, model_folder, refused, trained_for, words_of_bench


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def bench(model, tmp_path, monkeypatch):
    """Words of a bench of two prompts with a published head."""
    monkeypatch.setattr(published, "HIDDEN", 16)
    return words_of_bench(model, tmp_path, "eagle(depth=2)", "--eagle", written(tmp_path / "heads" / "head", HEAD),
                          turns=("a b c", "a b d"))


def begun(words):
    """Has the run end after its first prompt."""
    with interrupted():
        assert cli.run(words) == 130


def settings_of(tmp_path):
    return json.loads((tmp_path / "out" / "settings.json").read_text())


def other_head(tmp_path):
    """A head of the same name and layout with other weights, elsewhere."""
    return str(written(tmp_path / "elsewhere" / "head", HEAD, lm_head__weight=torch.ones(5, 16)))


def test_a_run_goes_on_with_the_head_that_it_began_with_and_with_no_other(bench, tmp_path, capsys):
    begun(bench)
    kept = settings_of(tmp_path)
    assert set(kept[LOADED]) == {"--target", "--eagle"}
    said = refused([*bench[:-1], other_head(tmp_path)], capsys)
    assert f"--eagle has the checksum {kept[LOADED]['--eagle'][:12]} there and " in said
    assert said.endswith("give another --out")
    assert settings_of(tmp_path) == kept
    moved = shutil.copytree(tmp_path / "heads" / "head", tmp_path / "moved" / "head")
    assert cli.run([*bench[:-1], str(moved)]) == 0
    assert settings_of(tmp_path) == kept


def test_a_finished_run_is_that_of_its_own_head_and_is_read_without_it(bench, tmp_path, capsys):
    assert cli.run(bench) == 0
    assert "--eagle has the checksum" in refused([*bench[:-1], other_head(tmp_path)], capsys)
    shutil.rmtree(tmp_path / "heads")
    assert cli.run(bench) == 0
    assert "already holds this finished run" in capsys.readouterr().err


def test_a_draft_model_and_a_target_of_the_same_name_with_other_weights_are_refused(bench, tmp_path, capsys):
    words = [*bench[:2], "draft-model(depth=2)", *bench[3:-2], "--draft", str(model_folder(tmp_path / "a" / "small"))]
    begun(words)
    assert set(settings_of(tmp_path)[LOADED]) == {"--target", "--draft"}
    other = model_folder(tmp_path / "b" / "small", seed=1)
    assert "--draft has the checksum" in refused([*words[:-1], str(other)], capsys)
    words[4] = str(model_folder(tmp_path / "c" / "tiny", seed=1))
    assert "--target has the checksum" in refused(words, capsys)


def test_a_default_run_goes_on_without_what_left_out_methods_loaded(model, tmp_path, capsys, monkeypatch):
    words = words_of_bench(model, tmp_path, "", turns=("a b c", "a b d"))
    trained_for(model, tmp_path / "shelf")
    del words[1:3]
    monkeypatch.setattr(Transformer, "takes_trees", False, raising=False)      # as of a target of transformers
    begun(words)
    assert f"eagle2 ({CHAINS_ONLY})" in capsys.readouterr().err
    assert set(settings_of(tmp_path)[LOADED]) == {"--target"}
    assert cli.run(words) == 0


def test_a_run_goes_on_with_its_own_store_and_one_of_an_older_version_with_any(model, tmp_path, capsys):
    words = words_of_bench(model, tmp_path, "sam", "--store", tmp_path / "s", turns=("a b c", "a b d"))
    build_store(tmp_path / "s", [[2] * 9])
    begun(words)
    kept = settings_of(tmp_path)
    build_store(tmp_path / "s", [[3] * 9])
    assert "--store has the checksum" in refused(words, capsys)
    del kept[LOADED]["--store"]
    (tmp_path / "out" / "settings.json").write_text(json.dumps(kept))
    assert cli.run(words) == 0


def test_a_folder_of_an_older_version_has_no_checksums_and_goes_on(bench, tmp_path):
    begun(bench)
    older = {name: value for name, value in settings_of(tmp_path).items() if name != LOADED}
    (tmp_path / "out" / "settings.json").write_text(json.dumps(older))
    assert cli.run(bench) == 0
    assert settings_of(tmp_path) == older
    assert cli.run(bench) == 0


def test_checksums_are_written_until_something_is_measured_and_compared_from_then_on(tmp_path):
    folder = RunFolder(tmp_path, PLAN)
    folder.keep_loaded({"eagle": "1" * 64})
    folder.keep_loaded({"eagle": "2" * 64})
    assert folder.loaded == {"eagle": "2" * 64}
    folder.write_part(0, ONE)
    assert RunFolder(tmp_path, PLAN).loaded == {"eagle": "2" * 64}
    folder.keep_loaded({"eagle": "2" * 64})
    for now, said in (({"eagle": "3" * 64}, "checksum 222222222222 there and 333333333333 here"),
                      ({}, "checksum 222222222222 there and none here"),
                      ({"eagle": "2" * 64, "ngram": "4" * 64}, "ngram has the checksum none there and 444444444444")):
        with pytest.raises(Exception, match=said):
            folder.keep_loaded(now)
