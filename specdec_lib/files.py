"""Files and folders: written whole or not at all, by one process at a time; safe names, and checksums. No format."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from specdec_lib.types import Refusal

UNSAFE = re.compile(r'^\.|[\x00-\x1f\x7f/\\:*?"<>|%\ud800-\udfff]')       # no part of a name, on one system or another
HALVES = re.compile("[\ud800-\udfff]")             # of a surrogate pair
LONGEST = 120                                      # bytes of a name: file systems take 255, endings included
LOCK, OWNER = ".lock", ".lock.owner"               # of a folder that one process at a time may change
FULL = {errno.ENOSPC: "its disk is full", errno.EDQUOT: "its disk is full",
        errno.EFBIG: "it is larger than this process may write (ulimit -f)"}


class DiskFull(Refusal):
    """A disk, a quota or a limit of this process took no more; the sentence names the file and the space."""


def cache_home() -> Path:
    """The folder of everything that is built once and can be built again."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdec"
    except RuntimeError:                           # neither HOME nor an entry for this user
        raise Refusal("there is no home folder to keep a cache in: set HOME, or XDG_CACHE_HOME to a folder") from None


def refuse_special(path: Path) -> None:
    """Refuses a pipe, a device or a socket: none can be read twice or replaced by a file, and some never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise Refusal(f"{path} is a pipe or a device: give a file or a folder, and save to a file what a pipe brings")


def check_file_place(path: Path) -> None:
    """Refuses, before work begins, a path where no file can be put.

    That is a folder, a pipe, a device, one below a file, and one in a folder that this user may not write in.
    """
    refuse_special(path)
    if path.is_dir():
        raise Refusal(f"{path} is a folder, and a file is written there: give the path of a file")
    above = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not above.is_dir():
        raise Refusal(f"{path} cannot be written, because {above} is no folder: give another path")
    if not os.access(above, os.W_OK):
        raise Refusal(f"{path} cannot be written, because you may not write in {above}: give another path")


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Has `write` fill a temporary neighbour and renames it: `path` is the old file or the new one, never a part.

    The folder must exist. Raises DiskFull, Refusal where no file can be put, and whatever else `write` raises; a failed
    write removes the neighbour, a killed process leaves it, and the next write of the same file removes it.
    """
    check_file_place(path)
    partial = partial_neighbour(path)
    with writing(path):
        try:
            write(partial)
            sync(partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text whole or not at all; the folder must exist."""
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def write_folder(folder: Path, fill: Callable[[Path], Any]) -> None:
    """Has `fill` fill a temporary neighbour and renames it to `folder`, which must not exist; makes missing parents.

    Raises and leaves behind what `write_atomically` does.
    """
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_neighbour(folder)
        try:
            partial.mkdir()
            fill(partial)
            for path in partial.rglob("*"):
                if path.is_file():
                    sync(path)
            os.replace(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns errors of a disk that takes no more, while `path` is written, into a DiskFull."""
    try:
        yield
    except Exception as error:
        why = why_full(error)
        if isinstance(error, Refusal) or why is None:
            raise
        place = next(parent for parent in path.absolute().parents if parent.exists())
        free = shutil.disk_usage(place).free
        raise DiskFull(f"{path} cannot be written: {why}, with {free / 1e6:.1f} MB free; "
                      "free some space and run the command again") from error


def why_full(error: Exception) -> str | None:
    """Why a disk took no more, or None for another error; safetensors gives the number in its text alone."""
    said = re.search(r"\(os error (\d+)\)", str(error))
    return FULL.get(int(said[1]) if said else getattr(error, "errno", None) or 0)


def sync(path: Path) -> None:
    """Waits until the content is on the disk, so that a name never points to less."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def partial_neighbour(path: Path) -> Path:
    """The name, of the same kind, under which this process writes `path`; removes what killed processes left of it."""
    stem = f".{path.name}.partial-"
    for name in os.listdir(path.parent):
        if name.startswith(stem) and not is_running(name.removeprefix(stem).removesuffix(path.suffix)):
            left = path.with_name(name)
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    return path.with_name(f"{stem}{os.getpid()}{path.suffix}")


def is_running(process: str) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:                                # somebody else's
        return True
    return True


@contextmanager
def alone_in(folder: Path, name: str = "") -> Iterator[None]:
    """Keeps every other process out of a folder, which is made if missing; Refusal naming the one that is in it.

    With `name` only those that name the same file in it are kept out.
    The lock ends with the process, and may be taken again by the process that holds it. Where a file system has no
    locks, nobody is kept out.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        place, owner = (folder / (f".{name}{end}" if name else end) for end in (LOCK, OWNER))
        lock = FileLock(place, is_singleton=True)
        if is_foreign_lock(place):
            raise Refusal(f"{folder} holds a {place.name} of another program: give another --out")
        outermost = not lock.is_locked
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise Refusal(f"{folder / name} is in use by {named_in(owner)}: wait until it has ended, or give another"
                          " --out") from None
        except (OSError, NotImplementedError):
            outermost = False
    try:
        if outermost:
            write_text(owner, f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        if outermost:
            with suppress(OSError):
                owner.unlink(missing_ok=True)
                place.unlink()
        lock.release()


def named_in(owner: Path) -> str:
    """The process that holds a lock; it may not have written its name yet, or have removed it a moment ago."""
    try:
        return owner.read_text(encoding="utf-8")
    except OSError:
        return "another process"


def is_foreign_lock(path: Path) -> bool:
    """Whether something else than a lock is here, which is a file without content; not where nothing is (any more)."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return not stat.S_ISREG(found.st_mode) or found.st_size > 0


def file_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_sha256(data: Any) -> str:
    """Hexadecimal SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def broken_unicode(*texts: str) -> bool:
    """Whether one of these holds half a surrogate pair, which no tokenizer takes and no file can keep."""
    return any(HALVES.search(text) for text in texts)


def file_stem(word: str) -> str:
    """A word from data as a file name without its ending: it names no other folder, and different words differ.

    Unsafe characters are written as in a URL; the end of a long word is replaced by its checksum.
    """
    stem = UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass")), word)
    if len(stem.encode()) <= LONGEST:
        return stem
    digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{stem.encode()[:LONGEST - 17].decode(errors='ignore')}-{digest}"
