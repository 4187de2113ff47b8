"""The checksum of a model's folder: of what decides its output, whatever it is called and wherever it lies."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from specdec_lib.files import file_sha256, json_sha256

MODEL_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")      # what decides a model's output
BUILT = "manifest.json"                            # of the default target: how it was built, not what it is


def folder_sha256(folder: Path) -> str:
    """Hexadecimal SHA-256 of a model's weights, configuration and tokenizer; unchanged files are read once."""
    files = sorted({file for pattern in MODEL_FILES for file in folder.glob(pattern)
                    if file.is_file() and file.name != BUILT})
    return json_sha256([[file.name, unchanged_sha256(file, *version(file))] for file in files])


def version(file: Path) -> tuple[int, int, int]:
    """What tells an edited file from what it was: inode, bytes, time in nanoseconds."""
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=256)
def unchanged_sha256(file: Path, *_: int) -> str:
    return file_sha256(file)
