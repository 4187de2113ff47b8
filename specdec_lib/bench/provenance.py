"""Where a result comes from: command, commit, versions, machine, threads, date. No names of people, no paths."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from specdec_lib.models.llama.packed_linear import bfloat16_is_fast

PACKAGES = ("specdec-lib", "torch", "transformers", "numpy", "safetensors")


def provenance(argv: list[str] | None = None) -> dict:
    """The provenance as plain data; `argv` is the command that ran, by default this process's."""
    return {"created": now(), "command": command(sys.argv if argv is None else argv), **commit(),
            "versions": versions(), "machine": machine()}


def changed_since(begun: Mapping, ended: Mapping) -> list[str]:
    """Warnings where a run ended with another commit, processor or torch than it began with."""
    there, here = ({**of, **of.get("machine", {}), **of.get("versions", {})} for of in (begun, ended))
    return [f"The run began with the {name} {there.get(name)} and was finished with {here.get(name)}."
            for name in ("commit", "processor", "torch") if begun and there.get(name) != here.get(name)]


def now() -> str:
    """Universal time, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def command(argv: list[str]) -> str:
    """The command line as a shell takes it, to be run again in the same folder; our own entry point is `specdec`.

    Paths are relative to the working folder or to the home. Elsewhere they would name folders of one machine: there
    they are cut to `.../NAME`.
    """
    own = argv[:1] and Path(argv[0]).parts[-2:] == ("specdec_lib", "cli.py")
    first = ["specdec" if own else Path(word).name for word in argv[:1]]
    return " ".join([*first, *(as_typed(word) for word in argv[1:])])


def as_typed(word: str) -> str:
    """A word of a command line, quoted for a shell where that is needed, an absolute path made relative."""
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    if not value.startswith(os.sep):
        return shlex.quote(word)
    for place, written in ((Path.cwd(), ""), (Path.home(), "~/")):
        if Path(value).is_relative_to(place):
            return f"{option}{equals}{written}{shlex.quote(str(Path(value).relative_to(place)))}"
    return f"{option}{equals}{shlex.quote(f'.../{Path(value).name}')}"


def without_folders(word: str) -> str:
    """A name without the folders of a path in it."""
    looks_local = word[:1] in ("/", ".", "~") or word.count(os.sep) > 1 or os.path.exists(word)
    return Path(word).name if os.sep in word and looks_local else word      # owner/model on a hub stays whole


def commit() -> dict:
    """The commit of the source, and whether tracked files were changed; None outside a checkout.

    Where the source was copied without its history, the variable SPECDEC_COMMIT names the commit it was copied from.
    """
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False)
        changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True,
                                 text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return unversioned()
    if head.returncode:
        return unversioned()
    return {"commit": head.stdout.strip(), "changed": bool(changed.stdout.strip())}


def unversioned() -> dict:
    """What is known of a copy without its history: the commit that its user names, and never whether it was changed."""
    return {"commit": os.environ.get("SPECDEC_COMMIT") or None, "changed": None}


def versions() -> dict[str, str]:
    """Versions of Python, PACKAGES and the operating system."""
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.release()}"}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict:
    """Processor, cores this process may use, threads in use, memory in GiB, accelerator; no host name."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": processor(), "cores": cores, "threads": torch.get_num_threads(),
            "memory_gib": memory(), "gpu": gpu, "bf16": bfloat16_is_fast(), "load": load_average()}


def load_average() -> float | None:
    """Processes that wanted a core during the last minute; above the core count, times are unreliable."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def processor() -> str:
    """The processor as the system names it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def memory() -> float | None:
    """Memory of the machine in GiB."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def card_provenance(made: dict, dtype: str) -> dict:
    """The part of a provenance that a card keeps."""
    machine = made["machine"]
    return {"command": made["command"], "commit": made["commit"], "changed": made["changed"],
            "date": made["created"][:10], "machine": machine["gpu"] or machine["processor"],
            "threads": machine["threads"], "dtype": dtype, "torch": made["versions"].get("torch")}
