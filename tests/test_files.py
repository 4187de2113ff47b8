"""Files are written whole or not at all, and their checksum is that of their bytes."""

import errno
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib.files import LONGEST, file_sha256, file_stem, write_atomically
from specdec_lib.types import Refusal


def failing(error):
    """A writer that fails half way."""
    def write(path):
        path.write_bytes(b"half")
        raise error

    return write


def test_a_write_replaces_the_old_file_and_leaves_no_neighbour(tmp_path):
    path = tmp_path / "a.json"
    for text in ("old", "new"):
        write_atomically(path, lambda partial, text=text: partial.write_text(text))
        assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


def test_the_content_is_synced_before_the_file_gets_its_name(tmp_path, monkeypatch):
    calls = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("sync"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("rename"), rename(*paths)))
    write_atomically(tmp_path / "a", lambda partial: partial.write_text("text"))
    assert calls == ["sync", "rename"]


@pytest.mark.parametrize("error", [ValueError("no JSON"), PermissionError(errno.EACCES, "denied"), KeyboardInterrupt()],
                         ids=lambda error: type(error).__name__)
def test_a_failed_write_raises_its_error_and_keeps_the_old_file(tmp_path, error):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(type(error)):
        write_atomically(path, failing(error))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), OSError(errno.EDQUOT, "quota"), RuntimeError(
    "Error while serializing: I/O error: No space left on device (os error 28)")], ids=["disk", "quota", "safetensors"])
def test_a_full_disk_is_refused_with_the_file_and_the_space_left(tmp_path, error):
    with pytest.raises(Refusal, match=r"a\.json cannot be written: its disk is full, with \d+\.\d MB free"):
        write_atomically(tmp_path / "a.json", failing(error))
    assert not list(tmp_path.iterdir())


def test_the_checksum_of_a_file_is_that_of_its_bytes(tmp_path):
    data = os.urandom(300_000)
    (tmp_path / "a").write_bytes(data)
    assert file_sha256(tmp_path / "a") == hashlib.sha256(data).hexdigest()


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_any_word_names_a_file_of_its_own_in_one_folder(one, other):
    for word in (one, other):
        stem = file_stem(word)
        assert Path("folder", stem).name == stem
        assert not stem.startswith(".")
        assert 0 < len(stem.encode()) <= LONGEST
    assert (file_stem(one) == file_stem(other)) == (one == other)


@pytest.mark.parametrize(("word", "stem"), [("multi_turn", "multi_turn"), ("math_reasoning-7", "math_reasoning-7"),
                                            ("my texts", "my texts"), ("übung", "übung"), ("../x", "%2E.%2Fx")])
def test_a_harmless_word_is_its_own_file_name(word, stem):
    assert file_stem(word) == stem
