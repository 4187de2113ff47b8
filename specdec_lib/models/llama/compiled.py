"""C code of the package: compiled once by the machine's compiler into the cache folder, checked when it is loaded.

The name of a library comes from its source and headers, the compiler and the processor, so each machine and each
version has its own. Its last bytes are the checksum of the others: a damaged file is made again. Knows nothing about
models.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from specdec_lib.files import cache_home, write_atomically
from specdec_lib.types import Refusal

COMPILERS = ("cc", "gcc", "clang")                 # the first that is there, unless CC names another
ON_ARM = platform.machine().lower() in ("aarch64", "arm64")      # as Linux and macOS call it
NATIVE = "-mcpu=native" if ON_ARM else "-march=native"           # Clang takes no other on ARM
FLAGS = ("-O3", NATIVE, "-ffp-contract=off", "-fno-strict-aliasing", "-std=c11", "-shared", "-fPIC")
PATIENCE = 120                                     # seconds for one compilation, and for another process's
SEAL = hashlib.sha256().digest_size                # bytes of the checksum at the end


def library(source: Path, *options: str) -> ctypes.CDLL | None:
    """The compiled source; None without a compiler that takes it, or a cache folder that can be written."""
    try:
        compiler = find_compiler()
        if compiler is None:
            return None
        path = cache_home() / f"{source.stem}-{key_of(source, compiler, options)}.so"
        if not is_whole(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path):
                if not is_whole(path):             # nobody made it meanwhile
                    write_atomically(path, lambda partial: build(source, [*compiler, *FLAGS, *options], partial))
        return ctypes.CDLL(str(path))
    except (OSError, ValueError, Refusal, subprocess.SubprocessError):
        return None


def find_compiler() -> list[str] | None:
    """The words that call the C compiler: those of CC, or the first of COMPILERS; None if there is none."""
    words = shlex.split(os.environ.get("CC", ""))
    for word, *more in [words] if words else [[name] for name in COMPILERS]:
        found = shutil.which(word)
        if found:
            return [found, *more]
    return None


def key_of(source: Path, compiler: list[str], options: tuple[str, ...]) -> str:
    """Changes with the source, its headers, the compiler, its options and the processor."""
    program = Path(compiler[0]).resolve()
    facts = program.stat()
    parts = [*texts_of(source), *compiler, str(program), str(facts.st_size), str(facts.st_mtime_ns),
             *FLAGS, *options, platform.machine(), processor_flags()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def texts_of(source: Path) -> list[str]:
    """The source, and the headers that it and they include by a name in quotes; each is included once."""
    texts, files = [], [source]
    for file in files:
        texts.append(file.read_text(encoding="utf-8"))
        found = [file.parent / name for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', texts[-1], re.MULTILINE)]
        files += [header for header in found if header not in files]
    return texts


def processor_flags() -> str:
    """What the processor can do, as Linux lists it; empty elsewhere."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return ""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits until no other process makes this file; where a file system has no locks, several make it."""
    lock = FileLock(path.with_suffix(".lock"), timeout=PATIENCE)
    with suppress(Timeout, OSError, NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def build(source: Path, command: list[str], path: Path) -> None:
    """Compiles and appends the checksum; SubprocessError if the compiler refuses."""
    subprocess.run([*command, str(source), "-o", str(path)], capture_output=True, stdin=subprocess.DEVNULL,
                   timeout=PATIENCE, check=True)
    with path.open("rb+") as file:
        digest = hashlib.sha256(file.read()).digest()
        file.write(digest)


def is_whole(path: Path) -> bool:
    """Whether the file is there and its last bytes are the checksum of the others."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    return len(content) > SEAL and hashlib.sha256(content[:-SEAL]).digest() == content[-SEAL:]
