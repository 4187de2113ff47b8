"""What the file system refuses is one sentence, with the space that is left where a disk is full."""

import errno

import torch
import typer

from specdec_lib.commands.exit_codes import BAD_INPUT, exit_code, why_failed


def test_a_full_disk_names_the_file_and_the_space_and_other_errors_their_reason(tmp_path):
    place = str(tmp_path / "a" / "b")
    full = why_failed(OSError(errno.ENOSPC, "No space left on device", place))
    assert full.startswith(f"{place} cannot be written: its disk is full, with ")
    assert why_failed(PermissionError(errno.EACCES, "Permission denied", place)) == f"Permission denied: {place}"
    assert why_failed(OSError("no number")) == "no number"


def test_a_device_without_memory_left_is_one_sentence(capsys):
    app = typer.Typer()

    @app.command()
    def work():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    assert exit_code(app, []) == BAD_INPUT
    assert "no memory left: take a smaller model" in capsys.readouterr().err
