"""What the file system refuses is one sentence, with the space that is left where a disk is full."""

import errno
import subprocess
import sys

import pytest
import torch
import typer

from specdec_lib import cli
from specdec_lib.commands.exit_codes import BAD_INPUT, exit_code, why_failed


def test_a_full_disk_names_the_file_and_the_space_and_other_errors_their_reason(tmp_path):
    place = str(tmp_path / "a" / "b")
    full = why_failed(OSError(errno.ENOSPC, "No space left on device", place))
    assert full.startswith(f"{place} cannot be written: its disk is full, with ")
    said = why_failed(PermissionError(errno.EACCES, "Permission denied", place))
    assert said == f"Permission denied: {place}; check the path, or give another one"
    assert why_failed(OSError("no number")) == "no number"
    assert why_failed(OSError(errno.ENOSPC, "No space left on device")) == (
        "the output cannot be written: its disk is full; free some space, or send it elsewhere")


def test_no_words_at_all_print_the_help(capsys):
    assert cli.run([]) == 0
    told = capsys.readouterr()
    assert "Usage:" in told.out
    assert len(told.out.splitlines()) > 20
    assert told.err == ""


def test_a_folder_that_is_gone_while_one_is_in_it_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    try:
        assert cli.run(["methods"]) == BAD_INPUT
    finally:
        monkeypatch.undo()
    assert capsys.readouterr().err == (
        "specdec: the folder that you are in has been removed: change to another one\n")


@pytest.mark.parametrize(("words", "said"), [
    (["genrate"], "'genrate'"), (["bench", "surplus"], "surplus"), (["bench", "--batches", "2"], "--batches")])
def test_words_that_no_command_takes_are_refused_with_where_they_are_listed(words, said, capsys):
    assert cli.run(words) == BAD_INPUT
    told = capsys.readouterr().err
    assert said in told
    assert "--help` lists" in told


PROGRAM = f"'{sys.executable}' -m specdec_lib.cli"


@pytest.mark.parametrize(("shell", "code", "said"), [
    (f"{PROGRAM} methods >&-", 0, ""), (f"{PROGRAM} methods | true", 1, ""),
    (f"{PROGRAM} generate - <&-", 2, "the prompt is empty"),
    (f"{PROGRAM} generate - >&- <&-", 2, "the prompt is empty"),
    (f"{PROGRAM} methods >/dev/full", 2, "the output cannot be written: its disk is full"),
    (f"{PROGRAM} bench --methods nope 2>&-", 2, ""),
    (f"PYTHONIOENCODING=ascii {PROGRAM} notebook", 0, ""), (f"PYTHONIOENCODING=latin-1 {PROGRAM} parts", 0, "")])
def test_streams_that_are_closed_full_or_know_few_letters_never_end_in_a_traceback(shell, code, said):
    done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True, timeout=120)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, bool(said))
    assert said in done.stderr


@pytest.mark.parametrize("fill", [
    lambda: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")),
    lambda: torch.empty(2 ** 55), lambda: bytearray(2 ** 55)], ids=["device", "torch", "Python"])
def test_a_device_without_memory_left_is_one_sentence(capsys, fill):
    app = typer.Typer()

    @app.command()
    def work():
        next(fill())
    assert exit_code(app, []) == BAD_INPUT
    assert "no memory left: take a smaller model" in capsys.readouterr().err
