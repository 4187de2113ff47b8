"""The checksum of a model's folder: of what decides its output, and of nothing else."""

import os
import shutil

import pytest

from specdec_lib.hub import locate
from specdec_lib.hub.checksum import folder_sha256


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    made.mkdir()
    for name, text in (("config.json", "{}"), ("model.safetensors", "weights"), ("README.md", "words")):
        (made / name).write_text(text)
    return made


def test_name_place_and_words_about_a_model_do_not_count(folder, tmp_path):
    one = folder_sha256(folder)
    moved = shutil.copytree(folder, tmp_path / "another")
    (moved / "README.md").write_text("other words")
    (moved / "manifest.json").write_text("how it was built")
    assert folder_sha256(moved) == one


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.model"])
def test_a_file_that_decides_the_output_counts_even_if_it_is_replaced_by_one_of_the_same_size(folder, name):
    (folder / name).write_text("12")
    one = folder_sha256(folder)
    (folder / name).write_text("21")
    os.utime(folder / name, ns=(1, 1))             # else two writes may fall into one tick of the clock
    assert folder_sha256(folder) != one


def test_a_folder_is_at_hand_where_nothing_must_be_fetched_or_built(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert locate.folder_at_hand(str(folder)) == folder
    for name in (locate.DEFAULT, str(tmp_path / "gone"), "", " ", "nobody/has-this-model", str(folder / "config.json")):
        assert locate.folder_at_hand(name) is None
    locate.default_folder().mkdir(parents=True)
    assert locate.folder_at_hand() == locate.default_folder()
