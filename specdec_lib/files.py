"""Files: written whole or not at all, named safely, and identified by their SHA-256. Knows no format."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specdec_lib.types import Refusal

UNSAFE = re.compile(r'^\.|[\x00-\x1f\x7f/\\:*?"<>|%\ud800-\udfff]')       # no part of a name, on one system or another
LONGEST = 120                                      # bytes of a name: file systems take 255, endings included


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


def file_stem(word: str) -> str:
    """A word from data as a file name without its ending: it names no other folder, and different words differ.

    Unsafe characters are written as in a URL; the end of a long word is replaced by its checksum.
    """
    stem = UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass")), word)
    if len(stem.encode()) <= LONGEST:
        return stem
    digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{stem.encode()[:LONGEST - 17].decode(errors='ignore')}-{digest}"
