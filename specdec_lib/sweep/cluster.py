"""Ray as the place where cells run: one of our own on this machine for as long as a sweep lasts, or an existing one.

Our own listens on the loopback interface alone, asks for a token, has no dashboard, sends no statistics and writes
its logs to a temporary folder, which goes with it. Its processes end with this one, also where it is killed.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from time import sleep
from types import ModuleType
from typing import Any, TextIO, cast

from specdec_lib.files import is_running
from specdec_lib.sweep.cells import Cell
from specdec_lib.sweep.work import CellResult, run_cell
from specdec_lib.types import Refusal

LOOPBACK = "127.0.0.1"
RETRIES = 3                                        # of a cell whose worker died
PATIENCE = 0.5                                     # seconds between two looks at Ctrl-C, and at what is left
TRIES, LOOKS = 3, 10                               # of a start (Ray waits 30 s), and at a folder that is to go
ADDRESS = re.compile(r"auto|(ray://)?[\w.-]+:\d{1,5}")
TEMPORARY = "specdec-ray-"
OURS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",    # else 127.0.0.1 is replaced
        "RAY_AUTH_MODE": "token"}
# Waits for the end of its input, which is the end of the process that holds it, then kills and removes what is left.
GUARD = """import os, shutil, sys
sys.stdin.read()
for process in sys.argv[2:]:
    try:
        os.kill(int(process), 9)
    except OSError:
        pass
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
NEEDS_RAY = ("specdec sweep runs its cells on Ray, which is not installed: install it with `pip install -c"
             " constraints.txt -e '.[sweep]'`")

Work = Callable[..., CellResult]
Run = Callable[[Sequence[Cell]], Iterator[tuple[Cell, CellResult]]]


@contextmanager
def start(address: str | None = None, work: Work = run_cell) -> Iterator[Run]:
    """Yields a function that runs cells and yields each with its result as it ends; Ray is stopped at the end.

    Without an address Ray is started here. Refusal without Ray, and where there is no cluster at the address.
    """
    check_address(address)
    watch = None
    if address is None:
        os.environ.update(OURS)                    # read when ray is imported, and by its processes
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    ray = ray_module()
    temporary = temporary_folder() if address is None else None
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        if temporary is None:
            begin(ray, f"no Ray cluster answers at {address}", address=address)
        else:
            begin(ray, "Ray cannot be started here; the machine may be busy: run the same command again", TRIES,
                  address="local", num_cpus=own_cores(), include_dashboard=False, _node_ip_address=LOOPBACK,
                  _temp_dir=str(temporary))
            watch = guard(temporary)
        with redirect_stdout(cast(TextIO, WithoutRay(sys.stdout))):
            yield lambda cells: finished_cells(ray, cells, work, address is not None)
    finally:
        with redirect_stdout(StringIO()):          # it prints what its threads held back
            ray.shutdown()
        if watch is not None:
            watch.kill()
            watch.wait()
        if temporary is not None:
            clear(temporary)


def begin(ray: ModuleType, otherwise: str, tries: int = 1, **settings: Any) -> None:
    """Calls `ray.init` quietly, again where it fails; Refusal with the sentence `otherwise` once all tries have."""
    for left in reversed(range(tries)):
        try:
            ray.init(logging_level=logging.CRITICAL, log_to_driver=False, configure_logging=False, **settings)
            return
        except Exception as error:                 # a node that is slow to start is a bare Exception of Ray's
            if not left:
                said = (str(error) or type(error).__name__).splitlines()[0]
                raise Refusal(f"{otherwise} ({said})") from None
            with redirect_stdout(StringIO()):
                ray.shutdown()


def clear(temporary: Path) -> None:
    """Removes the folder of Ray that has ended, and before it what a start that failed has left running there."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(str(temporary) in word for word in process.cmdline()):
                process.kill()
    for _ in range(LOOKS):                         # processes that are about to end still write into it
        shutil.rmtree(temporary, ignore_errors=True)
        if not temporary.exists():
            return
        sleep(PATIENCE)


class WithoutRay:
    """A stream for all threads but Ray's own, which print words about dead workers whatever its settings are."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        return len(text) if threading.current_thread().name.startswith("ray_") else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guard(temporary: Path) -> subprocess.Popen:
    """A process that ends Ray's if this one is killed: its agents would stay for a minute, its folder for good."""
    import psutil

    below = [str(process.pid) for process in psutil.Process().children(recursive=True)]
    return subprocess.Popen([sys.executable, "-S", "-c", GUARD, str(temporary), *below], stdin=subprocess.PIPE,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def check_address(address: str | None) -> None:
    """Refuses what cannot be the address of a cluster."""
    if address is not None and not ADDRESS.fullmatch(address):
        raise Refusal(f"--address is auto, HOST:PORT or ray://HOST:PORT, got {address!r}")


def ray_module() -> ModuleType:
    """Ray, or a Refusal that says how to install it."""
    try:
        import ray
    except ImportError:
        raise Refusal(NEEDS_RAY) from None
    return ray


def own_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def temporary_folder() -> Path:
    """A new folder for Ray's sockets and logs that nobody else may enter; removes those of killed sweeps.

    Its name is short: a socket's path has at most 107 letters.
    """
    place = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
    for left in place.glob(f"{TEMPORARY}*"):
        if left.stat().st_uid == os.getuid() and not is_running(left.name.removeprefix(TEMPORARY).partition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{os.getpid()}-", dir=place))


def finished_cells(ray: ModuleType, cells: Sequence[Cell], work: Work, check: bool
                   ) -> Iterator[tuple[Cell, CellResult]]:
    """The cells with their results, in the order in which they end."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    remote, waiting = ray.remote(work), {}
    for cell in cells:
        cores, gpus = reserved(cell, nodes)
        task = remote.options(num_cpus=cores, num_gpus=gpus, max_retries=RETRIES, scheduling_strategy="SPREAD")
        waiting[task.remote(cell, cores, check)] = cell
    while waiting:
        ended, _ = ray.wait(list(waiting), timeout=PATIENCE)
        for reference in ended:
            yield waiting.pop(reference), result_of(ray, reference)


def result_of(ray: ModuleType, reference: Any) -> CellResult:
    """A task's result; where it has none, why."""
    try:
        return ray.get(reference)
    except ray.exceptions.WorkerCrashedError:
        return CellResult(failed=f"the process that ran it died {RETRIES + 1} times")
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return CellResult(failed=f"{type(error).__name__}: {lines[-1] if lines else 'no reason given'}")


def reserved(cell: Cell, nodes: Sequence[dict[str, float]]) -> tuple[int, int]:
    """Cores and GPUs that a cell reserves; Refusal where no node has them.

    A timing cell takes what its grid says, else all cores of the largest node: smaller ones would not compare with it.
    """
    cores = cell.cores or int(max(node.get("CPU", 0) for node in nodes))
    gpus = 1 if cell.run.plan.device.startswith("cuda") else 0
    if not any(node.get("CPU", 0) >= cores >= 1 and node.get("GPU", 0) >= gpus for node in nodes):
        raise Refusal(f"a cell needs {cores} cores{' and a GPU' if gpus else ''}, and no node of the cluster has them")
    return cores, gpus
