"""A folder that is built once: under a lock, in a temporary neighbour, renamed when complete, checked when used.

An interrupted build leaves nothing under the folder's name, and the next start removes its leftovers. Of two
processes that start together one builds. Knows nothing about models.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from specdec_lib.files import file_sha256, why_full, write_text, writing
from specdec_lib.types import Refusal

MANIFEST = "manifest.json"
Say = Callable[[str], None]


def build_once(folder: Path, make: Callable[[Path, Say], None], say: Say, needed: int = 0) -> Path:
    """The folder; if it is missing, `make(temporary folder, say)` fills it, which takes `needed` bytes of disk."""
    if not folder.exists():
        check_space(folder, needed)
        with cache_lock(folder, say) as alone:
            if alone:
                remove_partial_builds(folder)
            if not folder.exists():
                build(folder, make, say)
    return checked_folder(folder)


def build(folder: Path, make: Callable[[Path, Say], None], say: Say) -> None:
    """Fills a temporary neighbour and renames it."""
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    partial.mkdir()
    try:
        make(partial, say)
        write_text(partial / MANIFEST, json.dumps(file_manifest(partial), indent=1) + "\n")
        rename_complete(partial, folder)
    except Exception as error:
        if why_full(error) is None:
            raise
        free = shutil.disk_usage(folder.parent).free
        raise Refusal(f"{folder} cannot be made: {why_full(error)}, with {free / 1e6:.1f} MB free; free some space, or"
                      " set XDG_CACHE_HOME to a folder on another disk") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def rename_complete(partial: Path, folder: Path) -> None:
    """Renames `partial`; if another process did so first, its folder stays."""
    try:
        partial.rename(folder)
    except OSError:
        if not folder.exists():
            raise


@contextmanager
def cache_lock(folder: Path, say: Say) -> Iterator[bool]:
    """Locks the build of one folder; yields whether there is a real lock. The lock ends with the process."""
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    real = acquire_lock(lock, folder, say)
    try:
        yield real
    finally:
        lock.release()


def acquire_lock(lock: BaseFileLock, folder: Path, say: Say) -> bool:
    """Waits for the lock; False on file systems that have none: both build, and the first rename wins."""
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say(f"another process is making {folder.name}, waiting for it")
        lock.acquire()
    except (OSError, NotImplementedError):
        return False
    return True


def remove_partial_builds(folder: Path) -> None:
    """Removes what interrupted builds of this folder left."""
    for partial in folder.parent.glob(f"{folder.name}.partial-*"):
        shutil.rmtree(partial, ignore_errors=True)


def check_space(folder: Path, needed: int) -> None:
    """Makes the cache folder; Refusal where it cannot be written or has too little space."""
    try:
        with writing(folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
    except OSError as error:
        raise Refusal(f"the cache folder {folder.parent} cannot be made ({error.strerror}): "
                      "set XDG_CACHE_HOME to one that can") from error
    if free < needed:
        raise Refusal(f"{folder.parent} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed: "
                      "free some space, or set XDG_CACHE_HOME")


def file_manifest(folder: Path) -> dict:
    """Size and SHA-256 of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(file.relative_to(folder)): {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
            for file in files}


def checked_folder(folder: Path, deep: bool = False) -> Path:
    """The folder, if its files have the sizes (deep: and checksums) they were written with; else Refusal."""
    again = "run `make clean-cache`, then start again"
    try:
        written = [(folder / name, facts["bytes"], facts["sha256"]) for name, facts in json.loads(
            (folder / MANIFEST).read_text(encoding="utf-8")).items()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Refusal(f"{folder} has no readable {MANIFEST}: {again}") from error
    for path, size, sha256 in written:
        same = path.is_file() and path.stat().st_size == size
        if not same or (deep and file_sha256(path) != sha256):
            raise Refusal(f"{path} is damaged: {again}")
    return folder
