"""Files are written whole or not at all, and their checksum is that of their bytes."""

import errno
import hashlib
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib.files import (
    LOCK,
    LONGEST,
    DiskFull,
    alone_in,
    cache_home,
    check_file_place,
    file_sha256,
    file_stem,
    write_atomically,
    write_folder,
    write_text,
    writing,
)
from specdec_lib.types import Refusal

HOLDER = """
import sys
from contextlib import contextmanager
from pathlib import Path
from specdec_lib.files import alone_in

with alone_in(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


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


def odd_places(folder):
    """A pipe, a folder, a link to a pipe, and a path below a file."""
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("pipe")
    (folder / "folder").mkdir()
    (folder / "file").write_text("mine")
    return {folder / "pipe": "is a pipe or a device", folder / "link": "is a pipe or a device",
            folder / "folder": "is a folder, and a file is written there", Path(): "is a folder",
            Path(".."): "is a folder", folder / "file" / "a" / "b": "file is no folder: give another path"}


def test_a_file_is_never_put_in_the_place_of_a_pipe_a_device_or_a_folder(tmp_path):
    for place, said in odd_places(tmp_path).items():
        for attempt in (check_file_place, lambda place: write_text(place, "text")):
            with pytest.raises(Refusal, match=said):
                attempt(place)
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "link", "pipe"]
    check_file_place(tmp_path / "new" / "a.json")
    check_file_place(tmp_path / "file")


def test_a_folder_that_may_not_be_written_in_is_refused_before_work_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, mode: place != tmp_path)       # root may write in any other
    for place in (tmp_path / "a.json", tmp_path / "new" / "a.json"):
        with pytest.raises(Refusal, match="may not write in .*: give another path"):
            check_file_place(place)


def test_the_lock_of_another_program_is_neither_emptied_nor_removed(tmp_path):
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / LOCK).symlink_to("../outside")
    (tmp_path / LOCK).write_text("mine")
    for folder in (tmp_path, tmp_path / "link"):
        with pytest.raises(Refusal, match="holds a .lock of another program: give another --out"), alone_in(folder):
            pass
    assert (tmp_path / LOCK).read_text() == "mine"
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), OSError(errno.EDQUOT, "quota"), RuntimeError(
    "Error while serializing: I/O error: No space left on device (os error 28)")], ids=["disk", "quota", "safetensors"])
def test_a_full_disk_is_refused_with_the_file_and_the_space_left(tmp_path, error):
    with pytest.raises(Refusal, match=r"a\.json cannot be written: its disk is full, with \d+\.\d MB free"):
        write_atomically(tmp_path / "a.json", failing(error))
    assert not list(tmp_path.iterdir())


@contextmanager
def no_room():
    """A real limit in the place of a full disk: no file of this process may grow, the log of the tests included."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def safetensors(path):
    import torch
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(9)}, path)


def table(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), path)


@pytest.mark.parametrize("write", [lambda path: path.write_text("text"), safetensors, table],
                         ids=["text", "safetensors", "parquet"])
def test_every_library_that_writes_is_understood_where_a_file_may_not_grow(tmp_path, write):
    said = r"a\.json cannot be written: it is larger than this process may write"
    with no_room(), pytest.raises(DiskFull, match=said):
        write_atomically(tmp_path / "a.json", write)
    with no_room(), pytest.raises(DiskFull, match="a_folder cannot be written"):
        write_folder(tmp_path / "a_folder", lambda folder: write(folder / "a"))
    with no_room(), pytest.raises(DiskFull, match=r"log cannot be written"), writing(tmp_path / "log"):
        write(tmp_path / "log")
    assert {path.name for path in tmp_path.iterdir()} <= {"log"}


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    def half(folder):
        (folder / "a").write_text("a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "deep" / "one", half)
    assert not list((tmp_path / "deep").iterdir())
    write_folder(tmp_path / "deep" / "one", lambda folder: (folder / "a").write_text("a"))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["deep", "deep/one", "deep/one/a"]


def test_what_a_killed_process_left_goes_with_the_next_write_and_what_a_living_one_writes_stays(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    for process in (dead.pid, os.getppid()):
        (tmp_path / f".a.json.partial-{process}.json").write_text("half")
    write_text(tmp_path / "a.json", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".a.json.partial-{os.getppid()}.json", "a.json"]


def test_a_folder_in_use_is_refused_with_the_process_that_has_it_and_free_when_that_is_killed(tmp_path):
    held = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    assert held.stdout.readline() == "held\n"
    with pytest.raises(Refusal, match=f"is in use by process {held.pid} on .*: wait until it has ended"), \
            alone_in(tmp_path):
        pass
    held.kill()
    held.communicate()
    with alone_in(tmp_path):
        assert (tmp_path / LOCK).exists()
        with alone_in(tmp_path):                   # the same process may come in twice
            pass
        assert (tmp_path / LOCK).exists()
    assert not list(tmp_path.iterdir())


def test_no_lock_is_left_in_a_folder_where_its_owner_cannot_be_written(tmp_path, monkeypatch):
    def full(*given):
        raise DiskFull("its disk is full")

    monkeypatch.setattr("specdec_lib.files.write_text", full)
    with pytest.raises(DiskFull), alone_in(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_holder_that_removes_its_name_at_this_moment_is_another_process(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda self: True)          # as it was a moment before
    with FileLock(tmp_path / LOCK), pytest.raises(Refusal, match="is in use by another process: wait"), \
            alone_in(tmp_path):
        pass


def test_without_a_home_folder_the_cache_is_refused_in_a_sentence(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(Refusal, match="set HOME, or XDG_CACHE_HOME to a folder"):
        cache_home()
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_home() == Path("/elsewhere/specdec")


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
