"""What the file system refuses is one sentence, with the space that is left where a disk is full."""

import errno

from specdec_lib.commands.exit_codes import why_failed


def test_a_full_disk_names_the_file_and_the_space_and_other_errors_their_reason(tmp_path):
    place = str(tmp_path / "a" / "b")
    full = why_failed(OSError(errno.ENOSPC, "No space left on device", place))
    assert full.startswith(f"{place} cannot be written: its disk is full, with ")
    assert why_failed(PermissionError(errno.EACCES, "Permission denied", place)) == f"Permission denied: {place}"
    assert why_failed(OSError("no number")) == "no number"
