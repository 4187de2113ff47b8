"""Files: written whole or not at all, and identified by their SHA-256. Knows no format."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specdec_lib.types import Refusal


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Has `write` fill a temporary neighbour and renames it: `path` is the old file or the new one, never a part.

    The folder must exist. Raises Refusal when the disk is full, and whatever else `write` raises; a failed write
    removes the neighbour, a killed process leaves it.
    """
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        write(partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())                # the content is on the disk before the name points to it
        os.replace(partial, path)
    except Exception as error:
        if not disk_is_full(error):
            raise
        free = shutil.disk_usage(path.parent).free
        raise Refusal(f"{path} cannot be written: its disk is full, with {free / 1e6:.1f} MB free; "
                      "free some space and run the command again") from error
    finally:
        partial.unlink(missing_ok=True)


def disk_is_full(error: Exception) -> bool:
    """Whether a write failed for lack of space or quota; safetensors says so only in its text."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error)


def file_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
